#include "formats/replay/slice_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "formats/io/error.h"
#include "formats/replay/replay.h"
#include "formats/replay/steps.h"
#include "formats/trace/distributed.h"
#include "formats/trace/windows.h"

namespace torchprof::formats {
namespace {

constexpr std::string_view kTo = "..";

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

// Finds the steps of a process and their times.
class StepFinder final : public Sink {
 public:
  StepFinder(const Process& process, std::pair<uint64_t, uint64_t> wanted) : replay_(process), wanted_(wanted) {
    replay_.run(*this);
  }
  void slice(const Slice& s) override {
    if (s.kind != SliceKind::kOperator) return;
    if (const auto number = step_number(replay_.names().text(s.name))) add(*number, s.begin.value, s.end.value);
  }
  void step(const StepMark& m) override {
    add(m.number, m.begin.value, m.end.value);
    if (!m.ended_by) rest = m.number;
  }

  uint64_t first = std::numeric_limits<uint64_t>::max(), last = 0;  // of all steps; first > last: there are none
  std::optional<uint64_t> rest;  // the number of what follows the last step, which can be asked for as one
  int64_t begin = std::numeric_limits<int64_t>::max();  // of those that are asked for; end < begin: none
  int64_t end = std::numeric_limits<int64_t>::min();
  std::set<uint64_t> numbers;  // of all steps

 private:
  void add(uint64_t number, int64_t from, int64_t to) {
    numbers.insert(number);
    first = std::min(first, number);
    last = std::max(last, number);
    if (number < wanted_.first || number > wanted_.second) return;
    begin = std::min(begin, from);
    end = std::max(end, to);
  }

  Replay replay_;
  std::pair<uint64_t, uint64_t> wanted_;
};

void select_processes(const std::vector<std::string>& wanted, std::vector<Process>& processes) {
  const auto is_pid = [](const Process& p, const std::string& text) { return text == std::to_string(p.pid); };
  const auto is_rank = [](const Process& p, const std::string& text) {
    const auto rank = distributed_of(p).rank;
    return rank && text == std::to_string(*rank);
  };
  std::vector<bool> kept(processes.size());
  for (const std::string& text : wanted) {
    const bool has_pid = std::ranges::any_of(processes, [&](const Process& p) { return is_pid(p, text); });
    bool is_found = false;
    for (size_t i = 0; i < processes.size(); ++i) {
      if (!(has_pid ? is_pid(processes[i], text) : is_rank(processes[i], text))) continue;
      kept[i] = is_found = true;
    }
    if (!is_found) throw Error("--process " + text + ": the run has no process with this id or rank");
  }
  size_t i = 0;
  std::erase_if(processes, [&](const Process&) { return !kept[i++]; });
}

void select_threads(const std::vector<std::string>& wanted, std::vector<Process>& processes) {
  for (const std::string& text : wanted) {
    const bool is_found = std::ranges::any_of(processes, [&text](const Process& p) {
      return std::ranges::any_of(p.tracks, [&text](const Track& t) {
        return text == std::to_string(t.tid) || text == t.name || text == t.python_name;
      });
    });
    if (!is_found) throw Error("--thread " + text + ": the run has no thread with this id or name");
  }
  for (Process& p : processes) p.selection.threads = wanted;
}

void cut(Selection& selection, int64_t begin, int64_t end) {
  selection.begin = std::max(selection.begin, begin);
  selection.end = std::min(selection.end, end);
}

// `captured` is not empty and has none of `wanted`.
std::string not_captured(std::pair<uint64_t, uint64_t> wanted, const std::set<uint64_t>& captured, bool has_times) {
  constexpr size_t kMostRanges = 8;
  const auto after = captured.lower_bound(wanted.second);
  const bool is_before = after == captured.end() ||
                         (after != captured.begin() && wanted.first - *std::prev(after) <= *after - wanted.second);
  const uint64_t nearest = is_before ? *std::prev(after) : *after;
  return "--steps: none of these was captured, but steps " +
         step_ranges({captured.begin(), captured.end()}, kMostRanges) + "; the nearest is " + std::to_string(nearest) +
         (has_times ? " (the time of every step: report -t steps)" : "");
}

void select_steps(std::pair<uint64_t, uint64_t> wanted, std::vector<Process>& processes) {
  uint64_t first = std::numeric_limits<uint64_t>::max(), last = 0, last_whole = 0;
  int64_t begin = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  std::vector<size_t> without;
  std::set<uint64_t> captured;
  bool has_windows = false, has_times = false;
  for (size_t i = 0; i < processes.size(); ++i) {
    const StepFinder found(processes[i], wanted);
    captured.insert(found.numbers.begin(), found.numbers.end());
    has_windows = has_windows || !processes[i].windows.empty();
    has_times = has_times || !processes[i].timed_steps().empty();
    first = std::min(first, found.first);
    last = std::max(last, found.last);
    if (found.first <= found.last)
      last_whole =
          std::max(last_whole, found.rest == found.last && found.last > found.first ? found.last - 1 : found.last);
    begin = std::min(begin, found.begin);
    end = std::max(end, found.end);
    if (found.first > found.last)
      without.push_back(i);
    else
      cut(processes[i].selection, found.begin, found.end);
  }
  if (first > last) throw Error("--steps: the run has no steps");
  if (begin > end && has_windows) throw Error(not_captured(wanted, captured, has_times));
  if (begin > end)
    throw Error("--steps: none of these; the run has steps " + std::to_string(first) + ".." +
                std::to_string(last_whole));
  for (const size_t i : without) cut(processes[i].selection, begin, end);
}

}  // namespace

std::optional<std::pair<uint64_t, uint64_t>> parse_steps(std::string_view text) {
  const size_t to = text.find(kTo);
  std::pair<uint64_t, uint64_t> steps;
  if (!parse_whole(text.substr(0, to), steps.first)) return {};
  steps.second = steps.first;
  if (to != text.npos && !parse_whole(text.substr(to + kTo.size()), steps.second)) return {};
  return steps.first <= steps.second ? std::optional(steps) : std::nullopt;
}

std::optional<int64_t> parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const double ns = unit == "ns"   ? 1
                    : unit == "us" ? 1e3
                    : unit == "ms" ? 1e6
                    : unit == "s"  ? 1e9
                    : unit == "m"  ? 6e10
                                   : 0;
  if (error != std::errc{} || ns == 0 || !(value >= 0) || value * ns > 1e18) return {};
  return std::llround(value * ns);
}

std::optional<std::pair<int64_t, int64_t>> parse_time(std::string_view text) {
  const size_t to = text.find(kTo);
  if (to == text.npos || text.size() == kTo.size()) return {};
  const std::string_view from_text = text.substr(0, to), to_text = text.substr(to + kTo.size());
  const auto begin = from_text.empty() ? std::optional<int64_t>(0) : parse_duration(from_text);
  const auto end =
      to_text.empty() ? std::optional<int64_t>(int64_t{1'000'000'000} * 1'000'000'000) : parse_duration(to_text);
  if (!begin || !end || *begin >= *end) return {};
  return std::pair(*begin, *end);
}

void select(const SliceRequest& request, Trace& trace) {
  const UnixNs start = trace.start;
  if (!request.processes.empty()) select_processes(request.processes, trace.processes);
  if (request.steps) select_steps(*request.steps, trace.processes);
  if (request.time && request.time->first >= trace.end - start)
    throw Error("--time: the run was over before; it took " + std::to_string((trace.end - start) / 1'000'000) + " ms");
  for (Process& p : trace.processes) {
    if (request.time) cut(p.selection, start.value + request.time->first, start.value + request.time->second);
    p.selection.min_ns = request.min_ns;
  }
  if (!request.threads.empty()) select_threads(request.threads, trace.processes);
}

}  // namespace torchprof::formats
