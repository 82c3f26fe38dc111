#include "formats/analysis/run_steps.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>

#include "formats/io/sum.h"
#include "formats/replay/replay.h"
#include "formats/trace/windows.h"
#include "tracer/spool/slow_step.h"

namespace torchprof::formats {
namespace {

constexpr size_t kLineParts = 60;
constexpr size_t kMostUnusual = 6;
constexpr size_t kMostRanges = 6;
constexpr int64_t kYear = int64_t{31'536'000} * 1'000'000'000;
constexpr double kAlike = 1.3;  // single slow steps of one kind differ by less than this

int64_t middle(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, at);
  return *at;
}

// Durations without what windows add.
struct Durations {
  explicit Durations(const std::vector<StepTime>& steps) {
    std::vector<int64_t> open, closed;
    for (const StepTime& s : steps) (s.is_free ? closed : open).push_back(s.ns);
    const int64_t without = middle(closed);
    slowdown = without > 0 && !open.empty()
                   ? std::max(1.0, static_cast<double>(middle(open)) / static_cast<double>(without))
                   : 1.0;
    for (const StepTime& s : steps)
      ns.push_back(s.is_free ? s.ns : static_cast<int64_t>(static_cast<double>(s.ns) / slowdown));
    median = middle(ns);
    std::vector<int64_t> deviations;
    for (const int64_t each : ns) deviations.push_back(std::abs(each - median));
    // No step takes a year; a damaged file may say so.
    slow = slow_step(std::min(median, kYear), std::min(middle(deviations), kYear));
  }
  bool is_slow(size_t i) const { return ns[i] > slow; }

  std::vector<int64_t> ns;
  double slowdown = 1;
  int64_t median = 0;
  int64_t slow = 0;
};

// Indices of slow steps that belong together.
struct Group {
  std::vector<size_t> steps;
  bool is_row = false;
};

std::vector<Group> groups_of(const Durations& durations) {
  constexpr size_t kRow = 3;  // so many in a row are a phase
  std::vector<Group> groups;
  std::vector<size_t> singles;
  for (size_t i = 0; i < durations.ns.size(); ++i) {
    if (!durations.is_slow(i)) continue;
    size_t end = i + 1, slow = 1;
    for (size_t gap = 0; end < durations.ns.size() && gap <= 1; ++end) {
      gap = durations.is_slow(end) ? 0 : gap + 1;
      slow += durations.is_slow(end);
    }
    while (!durations.is_slow(end - 1)) --end;
    if (slow >= kRow) {
      Group& row = groups.emplace_back();
      row.is_row = true;
      for (size_t k = i; k < end; ++k) row.steps.push_back(k);
    } else {
      for (size_t k = i; k < end; ++k)
        if (durations.is_slow(k)) singles.push_back(k);
    }
    i = end - 1;
  }
  std::ranges::sort(singles, {}, [&](size_t i) { return durations.ns[i]; });
  for (size_t i = 0; i < singles.size(); ++i) {
    const bool is_alike = i > 0 && static_cast<double>(durations.ns[singles[i]]) <
                                       kAlike * static_cast<double>(durations.ns[singles[i - 1]]);
    if (!is_alike) groups.emplace_back();
    groups.back().steps.push_back(singles[i]);
  }
  for (Group& group : groups) std::ranges::sort(group.steps);
  return groups;
}

// The distance at which most of them came; 0: none.
uint64_t distance_of(const std::vector<StepTime>& steps, const std::vector<size_t>& indices) {
  if (indices.size() < 3) return 0;
  std::map<uint64_t, size_t> times;
  for (size_t i = 1; i < indices.size(); ++i) ++times[steps[indices[i]].step - steps[indices[i - 1]].step];
  const auto most = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
  return most->second * 10 >= (indices.size() - 1) * 6 ? most->first : 0;
}

// ---- what was different -------------------------------------------------------------------------------------------

struct Interval {
  int64_t begin, end;  // ns
  size_t group;        // 0: typical steps, otherwise one more than the index of a group
};

struct FunctionTime {
  std::vector<double> group_ns;  // in the captured part of each group
  uint32_t depth = 0;
};

class Attribution : public Sink {
 public:
  Attribution(std::vector<Interval> intervals, size_t groups) : intervals_(std::move(intervals)), groups_(groups) {
    std::ranges::sort(intervals_, {}, &Interval::begin);
  }
  void slice(const Slice& s) override {
    if (s.kind != SliceKind::kPython || !s.outermost) return;
    auto at = std::ranges::upper_bound(intervals_, s.begin.value, {}, &Interval::end);
    for (; at != intervals_.end() && at->begin < s.end.value; ++at) {
      FunctionTime& time = functions_[s.name.value];
      if (time.group_ns.empty()) time.group_ns.resize(groups_ + 1);
      time.depth = std::max(time.depth, s.depth);
      time.group_ns[at->group] +=
          static_cast<double>(std::min(s.end.value, at->end) - std::max(s.begin.value, at->begin));
    }
  }
  const std::unordered_map<uint32_t, FunctionTime>& functions() const { return functions_; }
  double length(size_t group) const {
    double ns = 0;
    for (const Interval& i : intervals_)
      if (i.group == group) ns += static_cast<double>(i.end - i.begin);
    return ns;
  }

 private:
  std::vector<Interval> intervals_;
  size_t groups_;
  std::unordered_map<uint32_t, FunctionTime> functions_;
};

// Windows lie in the order of time. The one that a step had may have been given up.
bool is_captured(const Process& process, const StepTime& step, Interval& part) {
  if (step.is_free) return false;  // the window before it closed a little after its begin
  const int64_t begin = step.end.value - step.ns;
  const Window* const window = window_after(process, begin);
  if (window == nullptr) return false;
  part.begin = std::max(begin, window->begin.value);
  part.end = std::min(step.end.value, window->end.value);
  return part.begin < part.end;
}

void find_what(const Process& process, const std::vector<StepTime>& steps, const Durations& durations,
               const std::vector<Group>& groups, std::vector<UnusualSteps>& unusual) {
  constexpr size_t kMost = 400;  // steps of a group that are looked at, and typical ones
  std::vector<Interval> intervals;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const size_t i : groups[g].steps) {
      Interval part{0, 0, g + 1};
      if (!is_captured(process, steps[i], part)) continue;
      if (++unusual[g].captured <= kMost) intervals.push_back(part);
    }
  }
  if (intervals.empty()) return;
  size_t typical = 0;
  for (size_t i = steps.size(); i-- > 0 && typical < kMost;) {
    Interval part{0, 0, 0};
    if (durations.is_slow(i) || !steps[i].in_full || !is_captured(process, steps[i], part)) continue;
    intervals.push_back(part);
    ++typical;
  }
  if (typical == 0) return;
  Replay replay(process);
  Attribution attribution(std::move(intervals), groups.size());
  replay.run(attribution);
  const double typical_ns = attribution.length(0) / static_cast<double>(typical);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (unusual[g].captured == 0) continue;
    // The captured part of a step is compared with as much of a typical step, a whole one at most for each.
    const double captured = attribution.length(g + 1);
    const auto looked_at = static_cast<double>(std::min<uint64_t>(unusual[g].captured, kMost));
    const double whole = std::min(captured / std::max(1.0, typical_ns), looked_at);
    struct Candidate {
      uint32_t name;
      double more, share;
      uint32_t depth;
    };
    std::vector<Candidate> candidates;
    double most = 0;
    for (const auto& [name, time] : attribution.functions()) {
      const double here = time.group_ns[g + 1];
      const double more = here - whole * time.group_ns[0] / static_cast<double>(typical);
      if (more <= 0) continue;
      candidates.push_back({name, more, more / here, time.depth});
      most = std::max(most, more);
    }
    if (most < 0.2 * (captured - whole * typical_ns) || most <= 0) continue;
    std::erase_if(candidates, [most](const Candidate& c) { return c.more < 0.7 * most; });
    const auto best = std::ranges::max_element(candidates, {}, [](const Candidate& c) {
      return std::tuple(std::round(c.share * 20), c.depth, -static_cast<int64_t>(c.name));
    });
    unusual[g].what = replay.names().text({best->name});
    unusual[g].what_ns = static_cast<int64_t>(best->more / looked_at / durations.slowdown);
  }
}

// ---- memory -------------------------------------------------------------------------------------------------------

// A line through the samples after the first quarter of the run, by step.
MemoryTrend trend_of(const Process& process, const std::vector<StepTime>& steps) {
  MemoryTrend trend;
  if (process.resident.size() < 2 || steps.empty()) return trend;
  trend.first_bytes = process.resident.front().bytes;
  trend.last_bytes = process.resident.back().bytes;
  double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  size_t at = 0;
  for (const ResidentSize& sample : process.resident) {
    while (at + 1 < steps.size() && steps[at].end < sample.at) ++at;
    if (at < steps.size() / 4) continue;
    const auto step = static_cast<double>(at), bytes = static_cast<double>(sample.bytes);
    n += 1;
    x += step;
    y += bytes;
    xx += step * step;
    xy += step * bytes;
    yy += bytes * bytes;
  }
  const double vx = n * xx - x * x, vy = n * yy - y * y, vxy = n * xy - x * y;
  constexpr double kFewest = 8, kFit = 0.8;
  if (n < kFewest || vx <= 0 || vy <= 0) return trend;
  trend.step_bytes = vxy / vx;
  const double grown = trend.step_bytes * static_cast<double>(steps.size()) * 3 / 4;
  trend.is_steady = trend.step_bytes > 0 && vxy * vxy / (vx * vy) > kFit && grown > double{1 << 24} &&
                    grown > 0.02 * static_cast<double>(trend.last_bytes);
  return trend;
}

// "COST of TIME", both in ns.
std::optional<double> cost_of(const Process& process) {
  const std::string_view text = process.meta("window.cost");
  int64_t cost = 0, time = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cost);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error != std::errc{} || !rest.starts_with(" of ")) return {};
  std::from_chars(rest.data() + 4, rest.data() + rest.size(), time);
  if (time <= 0) return {};
  return static_cast<double>(cost) / static_cast<double>(time);
}

}  // namespace

std::optional<RunSteps> run_steps_of(const Process& process) {
  if (process.windows.empty() || process.steps.empty()) return {};
  std::vector<StepTime> steps = process.steps;
  std::erase_if(steps, [](const StepTime& s) { return s.ns <= 0; });
  if (steps.empty()) return {};
  RunSteps run;
  run.count = process.steps.size();
  std::vector<uint64_t> captured;
  for (const StepTime& s : process.steps)
    if (s.in_full) captured.push_back(s.step);
  std::ranges::sort(captured);
  captured.erase(std::unique(captured.begin(), captured.end()), captured.end());
  run.captured = captured.size();
  run.captured_text = step_ranges(captured, kMostRanges);
  run.cost = cost_of(process);
  std::vector<int64_t> ns;
  for (const StepTime& s : steps) ns.push_back(s.ns);
  run.median_ns = middle(ns);
  run.most_ns = std::ranges::max(ns);
  run.slowest = std::ranges::max_element(steps, {}, &StepTime::ns)->step;
  const size_t parts = std::min(kLineParts, steps.size());
  run.line.resize(parts);
  run.line_captured.resize(parts);
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t part = i * parts / steps.size();
    run.line[part] = std::max(run.line[part], steps[i].ns);
    if (steps[i].in_full) run.line_captured[part] = true;
  }
  const Durations durations(steps);
  std::vector<Group> groups = groups_of(durations);
  const auto more = [&](const Group& group) {
    int64_t ns = 0;
    for (const size_t i : group.steps) add_to(ns, durations.ns[i] - durations.median);
    return ns;
  };
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t g = 0; g < groups.size(); ++g) order.emplace_back(-more(groups[g]), g);
  std::ranges::sort(order);
  std::vector<Group> sorted_groups;
  for (const auto& [less, g] : order) sorted_groups.push_back(std::move(groups[g]));
  groups = std::move(sorted_groups);
  if (groups.size() > kMostUnusual) groups.resize(kMostUnusual);
  for (const Group& group : groups) {
    UnusualSteps& unusual = run.unusual.emplace_back();
    unusual.first = steps[group.steps.front()].step;
    unusual.last = steps[group.steps.back()].step;
    unusual.count = group.steps.size();
    unusual.is_row = group.is_row;
    unusual.every = group.is_row ? 0 : distance_of(steps, group.steps);
    unusual.more_ns = more(group);
    std::vector<int64_t> own;
    for (const size_t i : group.steps) own.push_back(durations.ns[i]);
    unusual.times = static_cast<double>(middle(own)) / static_cast<double>(std::max<int64_t>(1, durations.median));
  }
  find_what(process, steps, durations, groups, run.unusual);
  run.memory = trend_of(process, steps);
  return run;
}

}  // namespace torchprof::formats
