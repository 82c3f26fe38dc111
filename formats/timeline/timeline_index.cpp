#include "formats/timeline/timeline_index.h"

#include <algorithm>

namespace torchprof::formats {

TimelineIndex::TimelineIndex(const Timeline& timeline) : timeline_(&timeline) {
  for (const TimelineWork& w : timeline.work) by_number_.try_emplace({w.device, w.stream}, 0);
  for (auto& [number, index] : by_number_) {
    index = streams_.size();
    streams_.push_back({number.first, number.second});
  }
  for (uint32_t i = 0; i < timeline.work.size(); ++i)
    streams_[by_number_[{timeline.work[i].device, timeline.work[i].stream}]].work.push_back(i);
  for (uint32_t row = 0; row < timeline.rows.size(); ++row)
    for (uint32_t i = 0; i < timeline.rows[row].spans.size(); ++i)
      if (const uint32_t correlation = timeline.rows[row].spans[i].correlation; correlation != 0)
        calls_.try_emplace(correlation, CallAt{row, i});
}

std::optional<size_t> TimelineIndex::stream(uint32_t device, uint32_t stream) const {
  const auto found = by_number_.find({device, stream});
  return found == by_number_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<CallAt> TimelineIndex::call(uint32_t correlation) const {
  const auto found = calls_.find(correlation);
  return correlation == 0 || found == calls_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Stretch> stretches_of(const Timeline& timeline) {
  if (timeline.steps.empty()) return {{INT64_MIN, INT64_MAX}};
  std::vector<Stretch> stretches;
  const StepSpan* before = nullptr;
  for (const StepSpan& step : timeline.steps) {
    // Requests have idle time between them.
    const bool follows = before != nullptr && (timeline.unit.empty() || step.begin <= before->end);
    if (follows && step.number <= before->number + 1)
      stretches.back().end = step.end;
    else
      stretches.push_back({step.begin, step.end});
    before = &step;
  }
  return stretches;
}

std::span<const uint32_t> work_in(const Timeline& timeline, const std::vector<uint32_t>& work, const Stretch& stretch) {
  const auto begin_of = [&timeline](uint32_t i) { return timeline.work[i].begin; };
  const auto first = std::ranges::lower_bound(work, stretch.begin, {}, begin_of);
  const auto last = std::ranges::lower_bound(first, work.end(), stretch.end, {}, begin_of);
  return {first, last};
}

SpansOfStep spans_of(const TimelineRow& row, int64_t begin, int64_t end) {
  const auto& spans = row.spans;
  const auto from = std::ranges::lower_bound(spans, begin, {}, &TimelineSpan::begin);
  const auto to = std::ranges::lower_bound(from, spans.end(), end, {}, &TimelineSpan::begin);
  SpansOfStep result{
      {}, static_cast<uint32_t>(from - spans.begin()), static_cast<uint32_t>(std::max(from, to) - spans.begin())};
  // They nest, so what is open then is the last one that began before, or around it.
  for (uint32_t i = result.first == 0 ? kNoSpan : result.first - 1; i != kNoSpan; i = spans[i].parent)
    if (spans[i].end > begin) result.open.push_back(i);
  std::ranges::reverse(result.open);
  return result;
}

// A step ends with a mark or an optimizer's step, on its own thread; else it is the thread that did most.
uint32_t TimelineIndex::main_row(const StepSpan& step) const {
  uint32_t main = kNoSpan;
  std::pair<bool, int64_t> best{};
  for (uint32_t r = 0; r < timeline_->rows.size(); ++r) {
    const TimelineRow& row = timeline_->rows[r];
    if (row.is_overflow) continue;
    const SpansOfStep inside = spans_of(row, step.begin, step.end);
    std::pair<bool, int64_t> found{};
    int64_t covered = step.begin;
    const auto take = [&](const TimelineSpan& s) {
      found.first |= s.end == step.end && s.kind != SpanKind::kOperator && s.kind != SpanKind::kCall;
      const int64_t end = std::min(s.end, step.end);
      if (end > covered) found.second += end - std::max(covered, s.begin);
      covered = std::max(covered, end);
    };
    for (const uint32_t i : inside.open) take(row.spans[i]);
    for (uint32_t i = inside.first; i < inside.last; ++i) take(row.spans[i]);
    if (found > best) best = found, main = r;
  }
  return main;
}

}  // namespace torchprof::formats
