#include "formats/analysis/step_differences.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/replay/replay.h"
#include "formats/trace/windows.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostSteps = 400;  // steps of a group that are looked at, and typical ones

struct Interval {
  int64_t begin, end;  // ns
  size_t group;        // 0: typical steps, otherwise one more than the index of a group
  int64_t overlap(const Slice& s) const { return std::min(s.end.value, end) - std::max(s.begin.value, begin); }
};

struct GroupTimes {
  std::vector<double> ns;  // in the captured part of each group
  uint32_t depth = 0;
};

class Attribution : public Sink {
 public:
  using Shapes = std::map<std::string, GroupTimes>;  // by dims_json

  Attribution(const Process& process, std::vector<Interval> intervals, size_t groups)
      : process_(process), intervals_(std::move(intervals)), groups_(groups) {
    std::ranges::sort(intervals_, {}, &Interval::begin);
  }
  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kPython && s.outermost) {
      for (auto at = first(s); at != intervals_.end() && at->begin < s.end.value; ++at)
        add(functions_[s.name.value], *at, static_cast<double>(at->overlap(s)), s.depth);
    } else if (s.kind == SliceKind::kOperator && s.inputs && s.own_ns > 0) {
      const auto at = first(s);
      if (at == intervals_.end() || at->begin > s.begin.value) return;
      const auto [known, is_new] = shapes_.try_emplace({s.name.value, s.inputs.value}, nullptr);
      if (is_new) known->second = &operators_[s.name.value][dims_json(process_.string(s.inputs))];
      add(*known->second, *at, static_cast<double>(s.own_ns), s.depth);
    }
  }
  const std::unordered_map<uint32_t, GroupTimes>& functions() const { return functions_; }
  const std::map<uint32_t, Shapes>& operators() const { return operators_; }
  double length(size_t group) const {
    double ns = 0;
    for (const Interval& i : intervals_)
      if (i.group == group) ns += static_cast<double>(i.end - i.begin);
    return ns;
  }

 private:
  std::vector<Interval>::const_iterator first(const Slice& s) const {
    return std::ranges::upper_bound(intervals_, s.begin.value, {}, &Interval::end);
  }
  void add(GroupTimes& times, const Interval& in, double ns, uint32_t depth) {
    if (times.ns.empty()) times.ns.resize(groups_ + 1);
    times.ns[in.group] += ns;
    times.depth = std::max(times.depth, depth);
  }

  const Process& process_;
  std::vector<Interval> intervals_;
  size_t groups_;
  std::unordered_map<uint32_t, GroupTimes> functions_;
  std::map<uint32_t, Shapes> operators_;
  std::map<std::pair<uint32_t, uint32_t>, GroupTimes*> shapes_;  // by name and encoded inputs
};

// The longest part of the step with a window. Windows lie in the order of time; one that closed with the step before
// reaches some microseconds into this one, and the one that the step had may have been given up: so a part counts from
// a twentieth of the step or 10 ms on.
bool is_captured(const Process& process, const StepTime& step, Interval& part) {
  if (step.is_free && step.window == 0) return false;
  const int64_t begin = step.end.value - step.ns;
  part.begin = part.end = begin;
  const Window* const end = process.windows.data() + process.windows.size();
  for (const Window* window = window_after(process, begin); window && window != end && window->begin < step.end;
       ++window) {
    const int64_t from = std::max(begin, window->begin.value), to = std::min(step.end.value, window->end.value);
    if (to - from > part.end - part.begin) part.begin = from, part.end = to;
  }
  constexpr int64_t kEnough = 10'000'000;
  return part.begin < part.end && part.end - part.begin >= std::min(step.ns / 20, kEnough);
}

struct Candidate {
  uint32_t name;
  double more, share;
  uint32_t depth;
  bool is_new;  // typical steps do not have it at all
};

// `step_ns`: how long the steps of the group took on average, wholly.
void name_function(const Attribution& attribution, const Names& names, size_t group, size_t typical, double step_ns,
                   StepDifference& difference) {
  const double typical_ns = attribution.length(0) / static_cast<double>(typical);
  const double captured = attribution.length(group);
  const auto looked_at = static_cast<double>(std::min<uint64_t>(difference.captured, kMostSteps));
  // In typical steps: as much as was captured, a whole one at most for each.
  const double whole = std::min(captured / std::max(1.0, typical_ns), looked_at);
  // As much longer as the step is what all of it would be on a busy machine.
  constexpr double kEven = 1.25;
  const double even = kEven * looked_at * step_ns / std::max(1.0, typical_ns);
  std::vector<Candidate> candidates;
  double most = 0;
  bool has_even = false;
  for (const auto& [name, time] : attribution.functions()) {
    const double here = time.ns[group], usual = time.ns[0] / static_cast<double>(typical);
    const double more = here - whole * usual;
    if (more <= 0.2 * (captured - whole * typical_ns)) continue;
    if (here <= even * usual) {
      has_even = true;
      continue;
    }
    candidates.push_back({name, more, more / here, time.depth, usual == 0});
    most = std::max(most, more);
  }
  difference.is_even = has_even && candidates.empty();
  if (candidates.empty()) return;
  std::erase_if(candidates, [most](const Candidate& c) { return c.more < 0.7 * most; });
  const auto best = std::ranges::max_element(candidates, {}, [](const Candidate& c) {
    return std::tuple(c.is_new, std::round(c.share * 20), c.depth, -static_cast<int64_t>(c.name));
  });
  difference.function = names.text({best->name});
  difference.more_ns = static_cast<int64_t>(best->more / looked_at);
}

// How many numbers two lists of shapes have in common, at the same places; 0 if they are not of one form.
size_t likeness(std::string_view a, std::string_view b) {
  size_t same = 1;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!a.empty() && !b.empty()) {
    const auto number = [&](std::string_view& text) {
      const auto digits = static_cast<size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
      const std::string_view found = text.substr(0, digits);
      text.remove_prefix(digits);
      return found;
    };
    const std::string_view left = number(a), right = number(b);
    if (left.empty() != right.empty()) return 0;
    if (!left.empty()) {
      same += left == right;
    } else if (a.front() != b.front()) {
      return 0;
    } else {
      a.remove_prefix(1), b.remove_prefix(1);
    }
  }
  return a.empty() && b.empty() ? same : 0;
}

void name_shapes(const Attribution& attribution, const Names& names, size_t group, StepDifference& difference) {
  double all = 0, other = 0, most = 0;
  uint32_t name = 0;
  const std::string* shapes = nullptr;
  for (const auto& [op, by_shape] : attribution.operators()) {
    // An operator that typical steps have not at all says nothing about shapes.
    if (std::ranges::none_of(by_shape, [](const auto& entry) { return entry.second.ns[0] > 0; })) continue;
    for (const auto& [dims, time] : by_shape) {
      all += time.ns[group];
      if (time.ns[0] > 0) continue;
      other += time.ns[group];
      if (time.ns[group] > most) most = time.ns[group], name = op, shapes = &dims;
    }
  }
  if (shapes == nullptr || other < 0.5 * all) return;
  const auto usual = std::ranges::max_element(attribution.operators().at(name), {}, [&](const auto& entry) {
    const double ns = entry.second.ns[0];
    return std::pair(ns > 0 ? likeness(entry.first, *shapes) : 0, ns);
  });
  difference.shapes = std::string(names.text({name})) + " " + *shapes + ", typical " + usual->first;
}

}  // namespace

std::vector<StepDifference> step_differences(const Process& process, const TimedSteps& steps,
                                             const std::vector<bool>& is_slow,
                                             const std::vector<std::vector<size_t>>& groups) {
  std::vector<StepDifference> differences(groups.size());
  std::vector<Interval> intervals;
  std::vector<size_t> looked_at;  // groups of which something was captured
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const size_t i : groups[g]) {
      Interval part{0, 0, looked_at.size() + 1};
      if (!is_captured(process, steps[i], part)) continue;
      if (++differences[g].captured <= kMostSteps) intervals.push_back(part);
    }
    if (differences[g].captured != 0) looked_at.push_back(g);
  }
  if (intervals.empty()) return differences;
  size_t typical = 0;
  for (size_t i = steps.size(); i-- > 0 && typical < kMostSteps;) {
    Interval part{0, 0, 0};
    if (is_slow[i] || !steps[i].in_full || !is_captured(process, steps[i], part)) continue;
    intervals.push_back(part);
    ++typical;
  }
  if (typical == 0) return differences;
  Replay replay(process);
  Attribution attribution(process, std::move(intervals), looked_at.size());
  replay.run(attribution);
  for (size_t k = 0; k < looked_at.size(); ++k) {
    const size_t g = looked_at[k];
    double ns = 0;
    for (const size_t i : groups[g]) ns += static_cast<double>(steps[i].ns);
    name_function(attribution, replay.names(), k + 1, typical, ns / static_cast<double>(groups[g].size()),
                  differences[g]);
    name_shapes(attribution, replay.names(), k + 1, differences[g]);
  }
  return differences;
}

}  // namespace torchprof::formats
