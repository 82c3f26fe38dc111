#include "formats/timeline/parts.h"

#include <cstdint>
#include <unordered_map>

#include "formats/io/intervals.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

std::vector<StepParts> step_parts_of(const Timeline& timeline, const std::vector<StepSpan>& steps) {
  using Kind = StepPartsCollector::Kind;
  StepPartsCollector parts;
  for (uint32_t r = 0; r < timeline.rows.size(); ++r) {
    const TimelineRow& row = timeline.rows[r];
    std::vector<bool> is_in_operator(row.spans.size());  // whether it is an operator, or inside of one
    for (size_t i = 0; i < row.spans.size(); ++i) {
      const TimelineSpan& s = row.spans[i];
      const bool is_inside = s.parent != kNoSpan && is_in_operator[s.parent];
      is_in_operator[i] = is_inside || s.kind == SpanKind::kOperator;
      const Kind kind = s.kind == SpanKind::kOperator     ? Kind::kOperator
                        : s.kind == SpanKind::kAnnotation ? Kind::kAnnotation
                        : s.kind == SpanKind::kGc         ? Kind::kCollector
                        : s.kind == SpanKind::kCall       ? Kind::kOther
                                                          : Kind::kPython;
      parts.add({.kind = kind,
                 .thread = r,
                 .name = s.name,
                 .begin = s.begin,
                 .end = s.end,
                 .is_outermost = s.parent == kNoSpan && !row.is_overflow,
                 .is_in_operator = is_inside},
                timeline.text(s.name));
    }
  }
  for (const TimelineWork& w : timeline.work)
    parts.work(w.begin, w.end, w.kind == WorkKind::kKernel, timeline.text(w.name));
  return parts.finish(steps);
}

namespace {

// Adds a tally for each thread; gives the index of each row's. An overflow row counts for its thread.
std::vector<size_t> tallies_of_rows(const Timeline& timeline, std::vector<ThreadTally>& tallies) {
  std::vector<size_t> of_row(timeline.rows.size());
  std::unordered_map<std::string_view, size_t> by_name;
  for (const bool is_overflow : {false, true})
    for (size_t r = 0; r < timeline.rows.size(); ++r) {
      if (timeline.rows[r].is_overflow != is_overflow) continue;
      const auto [known, is_new] = by_name.try_emplace(timeline.rows[r].thread, tallies.size());
      of_row[r] = is_overflow ? known->second : tallies.size();
      if (is_new || !is_overflow) tallies.emplace_back().name = timeline.rows[r].thread;
    }
  return of_row;
}

}  // namespace

std::vector<ThreadTally> threads_of(const Timeline& timeline) {
  std::vector<ThreadTally> result;
  const std::vector<size_t> tally_of_row = tallies_of_rows(timeline, result);
  struct Open {
    Intervals any, operators, python;
  };
  std::vector<Open> opens(result.size());
  for (size_t r = 0; r < timeline.rows.size(); ++r) {
    const TimelineRow& row = timeline.rows[r];
    ThreadTally& tally = result[tally_of_row[r]];
    Open& open = opens[tally_of_row[r]];
    for (const TimelineSpan& s : row.spans) {
      if (s.kind == SpanKind::kCall) continue;  // tables of threads know operators and Python alone
      const bool is_op = s.kind == SpanKind::kOperator || s.kind == SpanKind::kAnnotation;
      if (!row.is_overflow) open.any.add(s.begin, s.end);
      if (!s.is_async) (is_op ? open.operators : open.python).add(s.begin, s.end);
      if (s.kind != SpanKind::kGc) ++(is_op ? tally.operators : tally.python_calls);
    }
  }
  // The self times of a kind add up to the time in which any is open.
  for (size_t i = 0; i < opens.size(); ++i) {
    const auto length = [](Intervals& intervals) {
      intervals.settle();
      return intervals.length(INT64_MIN, INT64_MAX);
    };
    result[i].open_ns = length(opens[i].any);
    result[i].operator_ns = length(opens[i].operators);
    result[i].python_ns = length(opens[i].python);
  }
  for (const TimelineWork& w : timeline.work)
    if (w.row != kNoSpan) add_to(result[tally_of_row[w.row]].gpu_ns, w.ns());
  std::erase_if(result, [](const ThreadTally& t) { return t.operators + t.python_calls == 0 && t.gpu_ns == 0; });
  return result;
}

}  // namespace torchprof::formats
