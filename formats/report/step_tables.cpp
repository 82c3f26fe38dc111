// Tables of steps: how long they took, and of those that were captured what they took it for.
#include <algorithm>
#include <cmath>
#include <set>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostStepRows = 50'000;  // of a process
constexpr size_t kDescribed = 4;          // processes whose unusual steps are named

// Interpolates between the two nearest values; `sorted` must not be empty.
double quantile(const std::vector<int64_t>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  return low + (place - static_cast<double>(below)) *
                   (static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]) - low);
}

std::string ns_text(int64_t ns) { return duration_text(static_cast<double>(ns)); }

// One character for each part of the run: as high as its longest step, from 0.
std::string line_text(const std::vector<int64_t>& line) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t most = std::max<int64_t>(1, *std::ranges::max_element(line));
  std::string text;
  for (const int64_t ns : line)
    text +=
        kHeights[std::min<int64_t>(7, static_cast<int64_t>(8.0 * static_cast<double>(ns) / static_cast<double>(most)))];
  return text;
}

std::string marks_text(const std::vector<bool>& captured) {
  std::string text;
  for (const bool each : captured) text += each ? '^' : ' ';
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string unusual_text(const UnusualSteps& u) {
  std::string text =
      u.count == 1 ? "step " + std::to_string(u.first)
      : u.is_row   ? "steps " + std::to_string(u.first) + "-" + std::to_string(u.last)
                   : count_text(u.count) + " steps from " + std::to_string(u.first) + " to " + std::to_string(u.last);
  if (u.every != 0) text += ", mostly each " + count_text(u.every);
  text += ": " + print("%.1f", u.times) + " times the median";
  if (u.count > 1) text += ", " + ns_text(u.more_ns) + " in all";
  if (!u.what.empty()) {
    text += "; +" + ns_text(u.what_ns) + " a step in " + printable(u.what);
  }
  if (!u.shapes.empty()) {
    text += "; other shapes: " + u.shapes;
  } else if (u.what.empty() && u.is_even) {
    text += "; all of it took longer";
  } else if (u.what.empty()) {
    text += u.captured == 0 ? "; not captured" : "; nothing stands out in the " + count_text(u.captured) + " captured";
  }
  return text;
}

// `is_text`: for letters of one width, where a mark can stand below the part that it is about.
std::vector<std::string> remarks_of(const RunSteps& run, const std::string& who, bool is_text) {
  std::vector<std::string> remarks;
  remarks.push_back(who + "in full: " + run.captured_text + "; the time of every step");
  if (run.cost)
    remarks.push_back(who + "windows added " + print("%.1f", *run.cost * 100) + " % to the run after its beginning");
  if (!run.line.empty()) {
    remarks.push_back(line_text(run.line) + "  at most " + ns_text(run.most_ns) + ", step " +
                      std::to_string(run.slowest));
    if (is_text) remarks.push_back(marks_text(run.line_captured));
  }
  for (const UnusualSteps& unusual : run.unusual) remarks.push_back(who + unusual_text(unusual));
  if (run.memory.is_steady)
    remarks.push_back(who + "the process's memory grows by " +
                      memory_text(static_cast<int64_t>(std::llround(run.memory.step_bytes))) + " a step, from " +
                      memory_text(static_cast<int64_t>(run.memory.first_bytes)) + " to " +
                      memory_text(static_cast<int64_t>(run.memory.last_bytes)));
  return remarks;
}

// A rank for which all others wait: at least a twentieth of the captured steps' time, and twice what it waits itself.
void name_slow_rank(const std::vector<ReportPart>& parts, std::vector<std::string>& remarks) {
  constexpr uint64_t kFewest = 10;
  constexpr int64_t kLeastPart = 20, kTimes = 2;
  std::vector<const CommsCalls*> processes;
  for (const ReportPart& part : parts) processes.push_back(&part.statistics.comms);
  for (const auto& [kind, t] : compare(processes)) {
    if (t.compared < kFewest) continue;
    const ReportPart& part = parts[t.least_waiting];
    int64_t ns = 0;
    for (const int64_t step : part.statistics.steps.ns) add_to(ns, step);
    if (t.others_waiting_ns < ns / kLeastPart || t.others_waiting_ns / kTimes < t.least_waiting_ns) continue;
    const std::string who = part.role.empty() ? "pid " + part.pid : part.role;
    remarks.push_back(printable(kind.name) + ": the others wait for " + who + ", " +
                      percent_text(t.others_waiting_ns, ns) + " of their steps' time or more; " + who +
                      " itself waits " + percent_text(t.least_waiting_ns, ns));
  }
}

}  // namespace

ReportTable steps_table(const std::vector<ReportPart>& parts, bool is_text) {
  ReportTable table = make_table("steps", "Steps");
  size_t runs = 0, described = 0;
  for (const ReportPart& part : parts) runs += part.run.has_value();
  for (const ReportPart& part : parts) {
    const Steps& steps = part.statistics.steps;
    if (steps.count == 0 && !part.run) continue;
    std::vector<int64_t> ns = steps.ns;
    if (part.run) {
      ns.clear();
      for (const StepTime& step : part.all_steps)
        if (step.ns > 0) ns.push_back(step.ns);
    }
    std::ranges::sort(ns);
    const auto of = [&ns](double place) { return ns.empty() ? Cell{} : Cell(quantile(ns, place)); };
    table.rows.push_back({part.pid, count(part.run ? part.run->count : steps.count),
                          part.run ? count(part.run->captured) : Cell{}, of(0.5), of(0.9), of(0.99), of(0), of(1),
                          part.run ? Cell{} : count(steps.jumps), text_or_missing(steps.ended_by)});
    if (!part.run) continue;
    const std::string who = runs < 2 ? "" : (part.role.empty() ? "pid " + part.pid : part.role) + ": ";
    if (++described > kDescribed) continue;
    std::ranges::move(remarks_of(*part.run, who, is_text), std::back_inserter(table.remarks));
  }
  name_slow_rank(parts, table.remarks);
  if (described > kDescribed)
    table.remarks.push_back(plural(described - kDescribed, "more process") + " with steps of this kind: report --json");
  show_if_any(table, "jumps", {"jumps"});
  show_if_any(table, "captured", {"captured", "p99_ns"});
  return table;
}

ReportTable step_times_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("step_times", "What steps took");
  StepParts sum{};
  int64_t all = 0;
  bool has_runs = false;
  for (const ReportPart& part : parts) {
    const std::vector<StepTime>& steps = part.all_steps;
    has_runs |= !steps.empty();
    std::set<uint64_t> in_full;
    for (const StepTime& step : steps)
      if (step.in_full) in_full.insert(step.step);
    const size_t first_row = table.rows.size();
    for (const StepParts& s : part.statistics.step_parts) {
      // Of a step that was captured in part the spool has the whole time.
      if (!steps.empty() && !in_full.contains(s.step.number)) continue;
      const int64_t ns = s.step.end - s.step.begin;
      table.rows.push_back({part.pid, count(s.step.number), ns, s.compute_ns, s.communication_ns, s.loading_ns,
                            s.host_ns, s.idle_ns, part.run ? Cell(std::string("yes")) : Cell{},
                            s.is_outlier ? Cell(std::string("outlier")) : Cell{}});
      add_to(all, ns);
      add_to(sum.compute_ns, s.compute_ns);
      add_to(sum.communication_ns, s.communication_ns);
      add_to(sum.loading_ns, s.loading_ns);
      add_to(sum.host_ns, s.host_ns);
      add_to(sum.idle_ns, s.idle_ns);
    }
    const size_t together = (steps.size() + kMostStepRows - 1) / kMostStepRows;
    if (together > 1)
      table.remarks.push_back("a row without detail stands for the longest of " + count_text(together) + " steps");
    for (size_t i = 0; i < steps.size(); i += std::max<size_t>(1, together)) {
      const StepTime* longest = nullptr;
      for (size_t k = i; k < std::min(i + together, steps.size()); ++k)
        if (!steps[k].in_full && steps[k].ns > 0 && (longest == nullptr || steps[k].ns > longest->ns))
          longest = &steps[k];
      if (longest == nullptr) continue;
      table.rows.push_back({part.pid, count(longest->step), longest->ns, Cell{}, Cell{}, Cell{}, Cell{}, Cell{},
                            std::string("no"), Cell{}});
    }
    std::stable_sort(table.rows.begin() + static_cast<ptrdiff_t>(first_row), table.rows.end(),
                     [](const auto& a, const auto& b) { return std::get<int64_t>(a[1]) < std::get<int64_t>(b[1]); });
  }
  if (has_runs) table.show("in_full", true);
  if (table.rows.empty()) return table;
  table.totals = {{"ns", all},
                  {"compute_ns", sum.compute_ns},
                  {"communication_ns", sum.communication_ns},
                  {"loading_ns", sum.loading_ns},
                  {"host_ns", sum.host_ns},
                  {"idle_ns", sum.idle_ns}};
  table.remarks.push_back(std::string(has_runs ? "those in full" : "all") + ": compute " +
                          percent_text(sum.compute_ns, all) + ", communication " +
                          percent_text(sum.communication_ns, all) + ", loading " + percent_text(sum.loading_ns, all) +
                          ", host gap " + percent_text(sum.host_ns, all) + ", idle " + percent_text(sum.idle_ns, all));
  return table;
}

}  // namespace torchprof::formats
