#include "formats/replay/steps.h"

#include <algorithm>
#include <charconv>
#include <span>

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
  StepCounter counter;
  std::optional<int64_t> border;
  for (const auto& [end, requester] : ends) {
    const uint64_t count = counter.ended(requester);
    if (count <= counter.current()) continue;
    if (count > counter.current() + 1) ++steps.jumps;
    counter.set(count);
    if (border) {
      steps.ns.push_back(end - *border);
      steps.spans.push_back({*border, end, steps.count});
    }
    border = end;
    ++steps.count;
    if (steps.ended_by.empty()) steps.ended_by = text(is_annotation, requester);
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

Steps StepTimes::finish(const Slices& slices, const Text& text) {
  if (marks_.empty()) return from_ends(text);
  Steps steps;
  std::ranges::stable_sort(marks_, {}, &Mark::begin);
  const bool rests_are_said = std::ranges::any_of(marks_, &Mark::is_rest);
  for (auto& ends : ends_) std::ranges::sort(ends);
  if (slices && !rests_are_said && last_is_fragment(slices)) marks_.back().is_rest = true;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i].is_rest) continue;
    // A number that goes down is that of another torch.profiler, which starts anew. torch 1.13 gives the first number
    // twice.
    const bool follows = i + 1 < marks_.size() && marks_[i + 1].number >= marks_[i].number;
    if (!slices && !rests_are_said && !follows && marks_.size() > 1) continue;
    ++steps.count;
    steps.ns.push_back(marks_[i].end - marks_[i].begin);
    steps.spans.push_back({marks_[i].begin, marks_[i].end, marks_[i].number});
    if (follows && marks_[i + 1].number > marks_[i].number + 1) ++steps.jumps;
  }
  if (steps.count != 0) steps.ended_by = ended_by_;
  return steps;
}

std::optional<uint64_t> step_number(std::string_view name) {
  if (!name.starts_with(kProfilerStep)) return std::nullopt;
  name.remove_prefix(kProfilerStep.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

}  // namespace torchprof::formats
