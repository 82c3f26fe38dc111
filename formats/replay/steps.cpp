#include "formats/replay/steps.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <span>
#include <utility>

#include "formats/trace/name_role.h"

namespace torchprof::formats {

void StepTimes::add(uint64_t number, int64_t begin, int64_t end, std::string_view ended_by) {
  marks_.push_back({begin, end, number, ended_by.empty()});
  if (ended_by_.empty()) ended_by_ = ended_by;
}

Steps StepTimes::from_ends(const Text& text) {
  Steps steps;
  const bool is_annotation = ends_[false].empty();
  auto& ends = ends_[is_annotation];
  std::ranges::sort(ends);
  const auto counter = std::make_unique<StepCounter>();
  std::vector<int64_t> borders;  // ends of steps
  int64_t before = 0;            // that of the step before a new requester took part in it
  for (const auto& [end, requester] : ends) {
    switch (counter->ended(requester, 0, end)) {
      case StepCounter::Ended::kBehind:
        continue;
      case StepCounter::Ended::kPart:
        before = std::exchange(borders.back(), end);
        continue;
      case StepCounter::Ended::kSplit:
        borders.push_back(std::exchange(borders.back(), before));
        break;
      case StepCounter::Ended::kNew:
        break;
    }
    borders.push_back(end);
    if (steps.ended_by.empty()) steps.ended_by = text(is_annotation, requester);
  }
  steps.count = borders.size();
  for (size_t i = 1; i < borders.size(); ++i) {
    steps.ns.push_back(borders[i] - borders[i - 1]);
    steps.spans.push_back({borders[i - 1], borders[i], i});
  }
  return steps;
}

std::optional<uint64_t> StepTimes::number_at(int64_t time) const {
  for (const Mark& mark : marks_)
    if (mark.begin <= time && time < mark.end) return mark.number;
  return {};
}

bool StepTimes::has_end(const Mark& mark) const {
  return std::ranges::any_of(ends_, [&mark](const auto& ends) {
    const auto next = std::ranges::lower_bound(ends, std::pair(mark.begin, uint32_t{0}));
    return next != ends.end() && next->first <= mark.end;
  });
}

// Compared with the latest of the others, which are sorted by begin.
bool StepTimes::last_is_fragment(const Slices& slices) const {
  constexpr size_t kCompared = 32;
  constexpr uint64_t kFewest = 8;  // slices of a step; fewer say nothing
  if (marks_.size() < 2) return false;
  const std::span<const Mark> others =
      std::span(marks_).first(marks_.size() - 1).last(std::min(kCompared, marks_.size() - 1));
  const Mark& last = marks_.back();
  const auto ends = [this](const Mark& mark) { return has_end(mark); };
  if (std::ranges::all_of(others, ends) && !has_end(last)) return true;
  std::vector<uint64_t> counts;
  for (const Mark& other : others) counts.push_back(slices(other.begin, other.end));
  std::ranges::nth_element(counts, counts.begin() + static_cast<ptrdiff_t>(counts.size() / 2));
  const uint64_t usual = counts[counts.size() / 2];
  return usual >= kFewest && slices(last.begin, last.end) < (usual + 1) / 2;
}

bool StepTimes::ends_in_call(const Mark& mark) const {
  const auto next = std::ranges::upper_bound(profiler_calls_, mark.end, {}, &StepSpan::begin);
  return next != profiler_calls_.begin() && mark.end <= std::prev(next)->end;
}

Steps StepTimes::finish(const Slices& slices, const Text& text) {
  if (marks_.empty()) return from_ends(text);
  Steps steps;
  std::ranges::stable_sort(marks_, {}, &Mark::begin);
  std::ranges::sort(profiler_calls_, {}, &StepSpan::begin);
  const bool rests_are_said = std::ranges::any_of(marks_, &Mark::is_rest);
  const bool may_end_with_rest = !slices && !(has_calls && profiler_calls_.empty());
  for (auto& ends : ends_) std::ranges::sort(ends);
  if (slices && !rests_are_said && last_is_fragment(slices)) marks_.back().is_rest = true;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i].is_rest || (has_calls && marks_[i].is_cut)) continue;
    // A number that goes down is that of another torch.profiler, which starts anew. torch 1.13 gives the first number
    // twice.
    const bool follows = i + 1 < marks_.size() && marks_[i + 1].number >= marks_[i].number;
    const bool is_single = marks_.size() == 1 && !has_calls;
    if (may_end_with_rest && !rests_are_said && !follows && !is_single && !ends_in_call(marks_[i])) continue;
    ++steps.count;
    steps.ns.push_back(marks_[i].end - marks_[i].begin);
    steps.spans.push_back({marks_[i].begin, marks_[i].end, marks_[i].number});
    if (follows && marks_[i + 1].number > marks_[i].number + 1) ++steps.jumps;
  }
  if (steps.count != 0) steps.ended_by = ended_by_;
  return steps;
}

std::optional<uint64_t> step_number(std::string_view name) {
  constexpr std::string_view kMark = prefix_of(NameRole::kProfilerStep);
  if (!name.starts_with(kMark)) return std::nullopt;
  name.remove_prefix(kMark.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

}  // namespace torchprof::formats
