#include "launcher/watch/top_picture.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include "formats/io/median.h"
#include "formats/io/text.h"
#include "launcher/watch/top_groups.h"

namespace torchprof::launcher {
namespace {

using formats::LiveRow;
using formats::LiveView;

[[gnu::format(printf, 1, 2)]] std::string format(const char* form, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, form);
  vsnprintf(text, sizeof(text), form, arguments);
  va_end(arguments);
  return text;
}

std::string time_text(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns >= 1'000'000'000) return format("%.2f s", value / 1e9);
  if (ns >= 1'000'000) return format("%.2f ms", value / 1e6);
  return format("%.1f us", value / 1e3);
}

// The front of a line that is too long; characters, not bytes.
std::string cut(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && seen++ == columns) break;
  return std::string(text.substr(0, at));
}

uint64_t allocated(const LiveView& view) {
  uint64_t bytes = 0;
  for (const formats::LiveMemory& memory : view.memory) bytes += memory.bytes;
  return bytes;
}

std::string name_of(const TopProcess& process) {
  std::string name = "process " + std::to_string(process.pid);
  if (!process.view.worker.empty()) return process.view.worker;
  return process.view.rank ? "rank " + std::to_string(*process.view.rank) : name;
}

class Picture {
 public:
  Picture(const TopState& state, const TopStyle& style)
      : state_(state), style_(style), has_live_(std::ranges::any_of(state.processes, &TopProcess::is_live)) {}

  std::vector<std::string> draw() {
    add(title(), "\033[1m");
    if (!state_.said.empty()) add(state_.said, "\033[33m");
    if (state_.processes.empty()) return lines_;
    add_steps();
    add_processes();
    const size_t rest = style_.size.rows > lines_.size() ? style_.size.rows - lines_.size() : 0;
    // A title and a heading each, and an empty line between them.
    const size_t rows = std::clamp<size_t>(rest > 4 ? (rest - 4) / 2 : 1, 1, 15);
    add_table("Operators", &LiveView::operators, &LiveView::operator_ns, rows);
    add_table("Python functions", &LiveView::functions, &LiveView::function_ns, rows);
    return lines_;
  }

 private:
  void add(const std::string& text, const char* colour = nullptr) {
    const std::string line = cut(formats::printable(text), style_.size.columns);
    lines_.push_back(colour != nullptr && style_.has_colours ? colour + line + "\033[0m" : line);
  }

  std::string title() const {
    std::string text = "torchprof top " + formats::shorten(formats::printable(state_.target), 30) + ": " + state_.state;
    if (state_.has_keys) text += "   q quits, w opens a window";
    return text;
  }

  // What a rank that has ended did last is not what the job does now.
  bool counts(const TopProcess& process) const { return process.is_live || !has_live_; }

  // Those of the process with the lowest rank that has steps.
  void add_steps() {
    const auto it =
        std::ranges::find_if(state_.processes, [this](const TopProcess& p) { return counts(p) && p.view.steps != 0; });
    if (it == state_.processes.end()) return add("steps  none seen so far");
    const LiveView& view = it->view;
    std::string line = "steps";
    if (view.steps_per_second) line += format("  %.4g/s", *view.steps_per_second);
    if (!view.step_ns.empty())
      line += "  last " + time_text(view.step_ns.back()) + "  median " + time_text(formats::median_of(view.step_ns));
    if (view.since_step_ns && !view.step_ns.empty() && it->is_live && view.has_all_steps &&
        *view.since_step_ns > 5 * mean_step(view) + 1'000'000'000)
      line += "  none for " + time_text(*view.since_step_ns);
    add(line);
    if (!view.step_ns.empty()) add("  " + sparkline(view.step_ns, style_.size.columns - 2, style_.has_utf8));
  }

  void add_processes() {
    const std::vector<TopProcess>& all = state_.processes;
    has_gpu_ = std::ranges::any_of(all, [](const TopProcess& p) { return p.view.gpu_busy.has_value(); });
    waits_ = std::ranges::any_of(all, [](const TopProcess& p) { return p.view.collective_ns.has_value(); });
    const size_t slowest = slowest_of(all), most = std::max<size_t>(4, style_.size.rows / 3);
    const std::vector<size_t> order = slowest_first(all);
    // A row for each, or one for those that behave alike.
    if (all.size() > most && order.size() > most) return add_groups(order, slowest);
    add_heading("");
    for (size_t i = 0; i < all.size(); ++i)
      if (i < most || i == slowest) add_process(i, slowest);  // the slowest is shown in any case
    if (all.size() > most) add(format("  and %zu more", all.size() - most - (slowest < all.size() && slowest >= most)));
  }

  void add_heading(const char* what) {
    std::string head = format("%-18s %9s", what, "step");
    if (waits_) head += "  waits";
    if (has_gpu_) head += "    GPU";
    add(head + format(" %10s %10s", "allocated", "resident"), "\033[1m");
  }

  // What the columns show: of a process, or the middle of several.
  struct Figures {
    int64_t step = 0;
    double waits = 0;
    std::optional<double> gpu;
    uint64_t allocated = 0, resident = 0;
  };
  std::string row(const std::string& name, const Figures& f) const {
    std::string line = format("%-18s", formats::shorten(name, 18).c_str());
    line += format(" %9s", f.step == 0 ? "-" : time_text(f.step).c_str());
    if (waits_) line += format(" %5.0f%%", 100 * f.waits);
    if (has_gpu_) line += f.gpu ? format(" %5.0f%%", *f.gpu * 100) : format(" %6s", "-");
    const auto bytes = [](uint64_t b) { return b == 0 ? std::string("-") : formats::bytes_text(b); };
    return line + format(" %10s %10s", bytes(f.allocated).c_str(), bytes(f.resident).c_str());
  }
  static Figures figures_of(const TopProcess& process) {
    const LiveView& view = process.view;
    return {mean_step(view), std::max(0.0, waiting_share(view)), view.gpu_busy, allocated(view), process.resident};
  }

  void add_process(size_t i, size_t slowest) {
    const TopProcess& process = state_.processes[i];
    std::string line = row(name_of(process), figures_of(process));
    if (!process.is_live) line += "  ended";
    if (process.view.has_stopped) line += "  its capture has ended: no more room";
    if (process.view.read_share < 0.995) line += format("  %.0f%% of its records read", process.view.read_share * 100);
    // In front, so that no narrow terminal hides it.
    if (i == slowest) line.replace(0, 18, format("%-18s", (cut(line, 9) + " slowest").c_str()));
    add(line, i == slowest ? "\033[31m" : nullptr);
  }

  // Ranks that behave alike, and those that the others wait for.
  void add_groups(const std::vector<size_t>& order, size_t slowest) {
    const std::vector<TopProcess>& all = state_.processes;
    std::vector<int64_t> steps;
    for (const size_t i : order) steps.push_back(mean_step(all[i].view));
    std::ranges::sort(steps);
    const auto part = [&steps](size_t percent) { return time_text(steps[(steps.size() - 1) * percent / 100]); };
    add("step of a rank: shortest " + part(0) + ", 10 % " + part(10) + ", median " + part(50) + ", 90 % " + part(90) +
        ", longest " + part(100));
    add_heading("middle of");
    for (const RankGroup& group : groups_of_ranks(all, order)) {
      std::vector<Figures> each;
      for (const size_t i : group.members) each.push_back(figures_of(all[i]));
      const auto middle = [&each](auto Figures::*value) {
        std::ranges::nth_element(each, each.begin() + static_cast<ptrdiff_t>(each.size() / 2), {}, value);
        return each[each.size() / 2].*value;
      };
      Figures of_group{middle(&Figures::step), middle(&Figures::waits), middle(&Figures::gpu),
                       middle(&Figures::allocated), middle(&Figures::resident)};
      add(row(group.name, of_group) + "  " + group.where);
    }
    constexpr size_t kSlowest = 5;
    add_heading("the slowest");
    for (size_t i = 0; i < std::min(kSlowest, order.size()); ++i) add_process(order[i], slowest);
  }

  // When it was, for the titles of tables.
  std::string span_text() const {
    const auto it = std::ranges::max_element(state_.processes, {}, [this](const TopProcess& p) {
      return std::tuple(counts(p), p.view.window_number, p.view.covered_ns);
    });
    const LiveView& view = it->view;
    if (view.window_number != 0)
      return format("window %u, %s, %s", view.window_number, view.is_window_open ? "open" : "closed",
                    time_text(view.covered_ns).c_str());
    if (!view.window.empty()) return "no window so far (" + formats::printable(view.window) + ")";
    return "last " + format("%.0f s", static_cast<double>(view.covered_ns) / 1e9);
  }

  void add_table(const char* title, std::vector<LiveRow> LiveView::*rows, int64_t LiveView::*all, size_t most) {
    std::map<std::string, LiveRow> by_name;
    int64_t total = 0;
    for (const TopProcess& process : state_.processes) {
      if (!counts(process)) continue;
      total += process.view.*all;
      for (const LiveRow& row : process.view.*rows) {
        LiveRow& sum = by_name[row.name];
        sum.self_ns += row.self_ns;
        sum.calls += row.calls;
      }
    }
    std::vector<std::pair<int64_t, const std::string*>> order;
    for (const auto& [name, row] : by_name) order.emplace_back(row.self_ns, &name);
    std::ranges::sort(order, std::greater{});
    add("");
    add(std::string(title) + " by self time, " + span_text(), "\033[1m");
    constexpr size_t kFigures = 29;
    const size_t width = style_.size.columns > kFigures + 8 ? style_.size.columns - kFigures : 8;
    for (size_t i = 0; i < std::min(most, order.size()); ++i) {
      const LiveRow& row = by_name[*order[i].second];
      add(format("%10s %5.1f%% %9llu  ", time_text(row.self_ns).c_str(),
                 100 * static_cast<double>(row.self_ns) / static_cast<double>(std::max<int64_t>(1, total)),
                 static_cast<unsigned long long>(row.calls)) +
          formats::shorten(formats::printable(*order[i].second), width));
    }
  }

  const TopState& state_;
  const TopStyle& style_;
  const bool has_live_;
  bool has_gpu_ = false, waits_ = false;  // some process has them
  std::vector<std::string> lines_;
};

}  // namespace

size_t slowest_of(const std::vector<TopProcess>& processes) {
  constexpr double kWaits = 0.1;  // of the time: less may be chance
  constexpr double kLonger = 1.1;
  const size_t none = processes.size();
  size_t least = none, most = none, longest = none, ranks = 0;
  int64_t shortest = INT64_MAX;
  const bool has_live = std::ranges::any_of(processes, &TopProcess::is_live);
  const auto waits = [&](size_t i) { return processes[i].view.collective_ns.value_or(-1); };
  for (size_t i = 0; i < processes.size(); ++i) {
    const TopProcess& process = processes[i];
    if (!process.view.worker.empty() || process.view.step_ns.empty() || (has_live && !process.is_live)) continue;
    ++ranks;
    if (waits(i) >= 0 && (least == none || waits(i) < waits(least))) least = i;
    if (waits(i) >= 0 && (most == none || waits(i) > waits(most))) most = i;
    if (longest == none || mean_step(process.view) > mean_step(processes[longest].view)) longest = i;
    shortest = std::min(shortest, mean_step(process.view));
  }
  if (ranks < 2) return none;
  if (least != none) {
    const auto covered = static_cast<double>(processes[most].view.covered_ns);
    if (static_cast<double>(waits(most) - waits(least)) > kWaits * covered) return least;
  }
  const auto step = static_cast<double>(mean_step(processes[longest].view));
  return step > kLonger * static_cast<double>(shortest) ? longest : none;
}

std::string sparkline(const std::vector<int64_t>& values, size_t width, bool has_utf8) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr const char* kPlain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const size_t count = std::min(values.size(), width);
  int64_t largest = 1;
  for (size_t i = values.size() - count; i < values.size(); ++i) largest = std::max(largest, values[i]);
  std::string out;
  for (size_t i = values.size() - count; i < values.size(); ++i) {
    const double share = static_cast<double>(std::max<int64_t>(0, values[i])) / static_cast<double>(largest);
    const auto level = std::min<size_t>(7, static_cast<size_t>(share * 8));
    out += has_utf8 ? kBlocks[level] : kPlain[level];
  }
  return out;
}

std::vector<std::string> top_picture(const TopState& state, const TopStyle& style) {
  return Picture(state, style).draw();
}

}  // namespace torchprof::launcher
