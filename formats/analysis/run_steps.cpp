#include "formats/analysis/run_steps.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "formats/analysis/step_differences.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/trace/windows.h"
#include "tracer/spool/slow_step.h"

namespace torchprof::formats {
namespace {

constexpr size_t kLineParts = 60;
constexpr size_t kMostUnusual = 6;
constexpr size_t kMostUnnamed = 3;  // of these
constexpr size_t kMostRanges = 6;
constexpr int64_t kYear = int64_t{31'536'000} * 1'000'000'000;
constexpr double kAlike = 1.3;  // single slow steps of one kind differ by less than this

// Durations without what windows add.
struct Durations {
  explicit Durations(const TimedSteps& steps) {
    std::vector<int64_t> open, closed;
    for (size_t i = 0; i < steps.size(); ++i) (steps[i].is_free ? closed : open).push_back(steps[i].ns);
    const bool has_both = !open.empty() && !closed.empty();
    const int64_t with = median_of(std::move(open)), without = median_of(std::move(closed));
    if (has_both && without > 0) slowdown = std::max(1.0, static_cast<double>(with) / static_cast<double>(without));
    ns.reserve(steps.size());
    for (size_t i = 0; i < steps.size(); ++i)
      ns.push_back(static_cast<int64_t>(static_cast<double>(steps[i].ns) / added(steps[i])));
    median = median_of(ns);
    std::vector<int64_t> deviations;
    deviations.reserve(ns.size());
    for (const int64_t each : ns) deviations.push_back(std::abs(each - median));
    // No step takes a year; a damaged file may say so.
    slow = slow_step(std::min(median, kYear), std::min(median_of(std::move(deviations)), kYear));
  }
  // The factor by which windows make this step longer.
  double added(const StepTime& step) const { return step.is_free ? 1 : slowdown; }
  bool is_slow(size_t i) const { return ns[i] > slow; }

  std::vector<int64_t> ns;
  double slowdown = 1;
  int64_t median = 0;
  int64_t slow = 0;
};

// Indices of slow steps that belong together.
struct StepGroup {
  std::vector<size_t> steps;
  bool is_row = false;
  StepDifference difference{};
  bool is_named() const { return !difference.function.empty() || !difference.shapes.empty(); }
};

struct SlowSteps {
  std::vector<StepGroup> rows;
  std::vector<size_t> singles;  // in rising order
};

// The rows of slow steps, with at most one between two of them that is not. A step that took far longer than the others
// of its row is no part of it, as an evaluation among steps that another program has slowed down.
SlowSteps slow_steps_of(const Durations& durations) {
  constexpr size_t kRow = 3;  // so many in a row are a phase
  constexpr double kFarLonger = 2;
  const std::vector<int64_t>& ns = durations.ns;
  SlowSteps found;
  for (size_t i = 0; i < ns.size(); ++i) {
    if (!durations.is_slow(i)) continue;
    size_t end = i + 1;
    for (size_t k = end; k < ns.size() && k <= end + 1; ++k)
      if (durations.is_slow(k)) end = k + 1;
    std::vector<int64_t> slow;
    for (size_t k = i; k < end; ++k)
      if (durations.is_slow(k)) slow.push_back(ns[k]);
    const double far = kFarLonger * static_cast<double>(median_of(std::move(slow)));
    const auto stands_out = [&](size_t k) { return static_cast<double>(ns[k]) > far; };
    StepGroup row{{}, true};
    size_t others = 0;
    for (size_t k = i; k < end; ++k) {
      if (!stands_out(k)) row.steps.push_back(k);
      others += durations.is_slow(k) && !stands_out(k);
    }
    while (!row.steps.empty() && !durations.is_slow(row.steps.back())) row.steps.pop_back();
    const bool is_row = others >= kRow;
    for (size_t k = i; k < end; ++k)
      if (is_row ? stands_out(k) : durations.is_slow(k)) found.singles.push_back(k);
    if (is_row) found.rows.push_back(std::move(row));
    i = end - 1;
  }
  return found;
}

int64_t middle_of(const StepGroup& group, const Durations& durations) {
  std::vector<int64_t> ns;
  for (const size_t i : group.steps) ns.push_back(durations.ns[i]);
  return median_of(std::move(ns));
}

// What they took longer than the median, all together.
int64_t more_of(const std::vector<size_t>& indices, const Durations& durations) {
  int64_t ns = 0;
  for (const size_t i : indices) add_to(ns, durations.ns[i] - durations.median);
  return ns;
}

// Those of `singles` (in rising order) that took about as long as the group's.
std::vector<size_t> alike_of(const StepGroup& group, const std::vector<size_t>& singles, const Durations& durations) {
  const auto middle = static_cast<double>(std::max<int64_t>(1, middle_of(group, durations)));
  std::vector<size_t> alike;
  for (const size_t i : singles) {
    const double ratio = static_cast<double>(durations.ns[i]) / middle;
    if (ratio < kAlike && ratio * kAlike > 1) alike.push_back(i);
  }
  return alike;
}

// Those of `alike` that came at a multiple of the distance from `anchor`, or a step beside it.
std::vector<size_t> at_distance(size_t distance, size_t anchor, const std::vector<size_t>& alike) {
  std::vector<size_t> found;
  for (const size_t i : alike) {
    const size_t away = i > anchor ? i - anchor : anchor - i;
    if ((away + 1) % distance <= 2) found.push_back(i);
  }
  return found;
}

// Those at the shortest distance between the group's own, of which two or more are known.
std::vector<size_t> at_own_distance(const StepGroup& group, const std::vector<size_t>& alike) {
  if (group.steps.size() < 2) return {};
  size_t distance = SIZE_MAX;
  for (size_t i = 1; i < group.steps.size(); ++i) distance = std::min(distance, group.steps[i] - group.steps[i - 1]);
  return at_distance(distance, group.steps[0], alike);
}

// Those of `alike` (in rising order) that came with `anchor` at the smallest distance at which most places have one.
// Empty: there is no such distance.
std::vector<size_t> row_of(size_t anchor, const std::vector<size_t>& alike) {
  constexpr size_t kFewest = 4, kShortest = 10;
  constexpr double kMostOfThem = 0.6;
  std::vector<size_t> distances;
  for (const size_t i : alike) distances.push_back(i > anchor ? i - anchor : anchor - i);
  std::ranges::sort(distances);
  for (const size_t distance : distances) {
    if (distance < kShortest) continue;
    std::vector<size_t> row = at_distance(distance, anchor, alike);
    if (row.size() < kFewest) continue;
    const size_t places = (row.back() - row.front() + 1) / distance + 1;
    if (static_cast<double>(row.size()) >= kMostOfThem * static_cast<double>(places)) return row;
  }
  return {};
}

// The captured ones by what they did, and those that came with them; then the others by how long they took.
void group_singles(const std::vector<size_t>& singles, const std::vector<StepDifference>& differences,
                   const Durations& durations, std::vector<StepGroup>& groups) {
  std::map<std::pair<std::string, std::string>, StepGroup> named;
  std::vector<size_t> others;  // places in `singles`
  for (size_t k = 0; k < singles.size(); ++k) {
    StepGroup one{{singles[k]}, false, differences[k]};
    if (!one.is_named()) {
      others.push_back(k);
      continue;
    }
    StepGroup& group = named[{one.difference.function, one.difference.shapes}];
    group.steps.push_back(singles[k]);
    one.difference.more_ns += group.difference.more_ns;  // the sum, for now
    one.difference.captured = group.steps.size();
    group.difference = std::move(one.difference);
  }
  for (auto& entry : named) {
    StepGroup& group = entry.second;
    group.difference.more_ns /= static_cast<int64_t>(group.difference.captured);
    const std::vector<size_t> alike = alike_of(group, singles, durations);
    std::vector<size_t> row = row_of(group.steps[0], alike);
    std::ranges::copy(at_own_distance(group, alike), std::back_inserter(row));
    std::ranges::sort(row);
    std::erase_if(others, [&](size_t k) {
      const bool is_one = std::ranges::binary_search(row, singles[k]);
      if (is_one) group.steps.push_back(singles[k]);
      return is_one;
    });
    groups.push_back(std::move(group));
  }
  const auto ns_of = [&](size_t k) { return durations.ns[singles[k]]; };
  std::ranges::sort(others, {}, ns_of);
  for (size_t i = 0; i < others.size(); ++i) {
    const bool is_alike =
        i > 0 && static_cast<double>(ns_of(others[i])) < kAlike * static_cast<double>(ns_of(others[i - 1]));
    if (!is_alike) groups.emplace_back();
    StepGroup& group = groups.back();
    group.steps.push_back(singles[others[i]]);
    group.difference.captured += differences[others[i]].captured;
  }
  for (StepGroup& group : groups) std::ranges::sort(group.steps);
}

std::vector<StepGroup> groups_of(const Process& process, const TimedSteps& steps, const Durations& durations) {
  constexpr size_t kMostSingles = 200;  // the longest of them are looked at one by one
  SlowSteps slow = slow_steps_of(durations);
  if (slow.singles.size() > kMostSingles) {
    const auto last = slow.singles.begin() + kMostSingles;
    std::ranges::nth_element(slow.singles, last, std::greater<>(), [&](size_t i) { return durations.ns[i]; });
    slow.singles.resize(kMostSingles);
    std::ranges::sort(slow.singles);
  }
  std::vector<std::vector<size_t>> looked_at;
  for (const StepGroup& row : slow.rows) looked_at.push_back(row.steps);
  for (const size_t i : slow.singles) looked_at.push_back({i});
  std::vector<bool> is_slow(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) is_slow[i] = durations.is_slow(i);
  std::vector<StepDifference> differences = step_differences(process, steps, is_slow, looked_at);
  for (size_t g = 0; g < looked_at.size(); ++g) {
    // Something that explains next to nothing of it is not named.
    constexpr int64_t kLeastShare = 10;
    const int64_t more = more_of(looked_at[g], durations);
    StepDifference& found = differences[g];
    double added = 1;
    for (const size_t i : looked_at[g]) added = std::max(added, durations.added(steps[i]));
    found.more_ns = static_cast<int64_t>(static_cast<double>(found.more_ns) / added);
    if (found.more_ns < more / static_cast<int64_t>(looked_at[g].size()) / kLeastShare) found.function.clear();
  }
  std::vector<StepGroup> groups;
  const auto singles = differences.begin() + static_cast<ptrdiff_t>(slow.rows.size());
  group_singles(slow.singles, {singles, differences.end()}, durations, groups);
  for (size_t g = 0; g < slow.rows.size(); ++g) {
    slow.rows[g].difference = std::move(differences[g]);
    groups.push_back(std::move(slow.rows[g]));
  }
  return groups;
}

// The distance at which most of them came; 0: none.
uint64_t distance_of(const TimedSteps& steps, const std::vector<size_t>& indices) {
  if (indices.size() < 3) return 0;
  std::map<uint64_t, size_t> times;
  for (size_t i = 1; i < indices.size(); ++i) ++times[steps[indices[i]].step - steps[indices[i - 1]].step];
  const auto most = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
  return most->second * 10 >= (indices.size() - 1) * 6 ? most->first : 0;
}

// ---- memory -------------------------------------------------------------------------------------------------------

// A line through the samples after the first quarter of the run, by step.
MemoryTrend trend_of(const Process& process, const TimedSteps& steps) {
  MemoryTrend trend;
  if (process.resident.size() < 2 || steps.size() == 0) return trend;
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
  if (process.windows.empty() || process.timed_steps().empty()) return {};
  const TimedSteps steps(process.steps);
  if (steps.size() == 0) return {};
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
  ns.reserve(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    ns.push_back(steps[i].ns);
    if (steps[i].ns <= run.most_ns) continue;
    run.most_ns = steps[i].ns;
    run.slowest = steps[i].step;
  }
  run.median_ns = median_of(std::move(ns));
  const size_t parts = std::min(kLineParts, steps.size());
  run.line.resize(parts);
  run.line_captured.resize(parts);
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t part = i * parts / steps.size();
    run.line[part] = std::max(run.line[part], steps[i].ns);
    if (steps[i].in_full) run.line_captured[part] = true;
  }
  const Durations durations(steps);
  std::vector<StepGroup> groups = groups_of(process, steps, durations);
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t g = 0; g < groups.size(); ++g) order.emplace_back(-more_of(groups[g].steps, durations), g);
  std::ranges::sort(order);
  std::vector<StepGroup> sorted_groups;
  for (const auto& [less, g] : order) sorted_groups.push_back(std::move(groups[g]));
  groups = std::move(sorted_groups);
  size_t unnamed = 0;
  std::erase_if(groups, [&](const StepGroup& group) { return !group.is_named() && ++unnamed > kMostUnnamed; });
  if (groups.size() > kMostUnusual) groups.resize(kMostUnusual);
  for (const StepGroup& group : groups) {
    UnusualSteps& unusual = run.unusual.emplace_back();
    unusual.first = steps[group.steps.front()].step;
    unusual.last = steps[group.steps.back()].step;
    unusual.count = group.steps.size();
    unusual.is_row = group.is_row;
    unusual.every = group.is_row ? 0 : distance_of(steps, group.steps);
    unusual.more_ns = more_of(group.steps, durations);
    unusual.captured = group.difference.captured;
    unusual.what = group.difference.function;
    unusual.what_ns = group.difference.more_ns;
    unusual.is_even = group.difference.is_even;
    unusual.shapes = group.difference.shapes;
    unusual.times =
        static_cast<double>(middle_of(group, durations)) / static_cast<double>(std::max<int64_t>(1, durations.median));
  }
  run.memory = trend_of(process, steps);
  return run;
}

}  // namespace torchprof::formats
