#include "formats/advice/loader_work.h"

#include <string_view>
#include <vector>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// torch/utils/data/_utils/worker.py, 1.13 to 2.14.
bool is_worker_loop(const TimelineSpan& s, std::string_view name) {
  return s.kind == SpanKind::kPython && name.ends_with("): _worker_loop") &&
         name.find("torch/utils/data/_utils/worker.py(") != name.npos;
}

}  // namespace

LoaderWork loader_work_of(const StepView& view) {
  const Timeline& timeline = view.timeline();
  LoaderWork work{.begin = timeline.begin, .end = timeline.end};
  const auto is_work = [](const RowView& row, size_t i) { return row.activity[i] != Activity::kWaiting; };
  for (uint32_t r = 0; r < view.rows().size(); ++r) {
    const auto& spans = timeline.rows[r].spans;
    const RowView& row = view.rows()[r];
    if (row.own.empty()) continue;
    uint32_t loop = kNoSpan;
    std::vector<bool> is_inside(spans.size()), is_wanted(spans.size());
    for (uint32_t i = 0; i < spans.size(); ++i) {
      const TimelineSpan& s = spans[i];
      const bool is_loop = is_worker_loop(s, view.text(s.name));
      if (is_loop && loop == kNoSpan) loop = i;
      is_inside[i] = is_loop || (s.parent != kNoSpan && is_inside[s.parent]);
      is_wanted[i] = is_inside[i] && is_work(row, i) && row.place[i] != 0;
    }
    if (loop == kNoSpan) continue;
    // What was running already when its window opened begins with what is around it.
    const uint32_t around = spans[loop].parent;
    if (around == kNoSpan || spans[around].begin < spans[loop].begin)
      work.start_ns = spans[loop].begin - timeline.begin;
    work.busiest = busiest_of(view, r, is_wanted);
    // Of all that it did, where the data set is a library's, too.
    work.busiest.all_ns = 0;
    for (uint32_t i = 0; i < spans.size(); ++i)
      if (is_inside[i] && is_work(row, i)) add_to(work.busiest.all_ns, row.own[i]);
    return work;
  }
  // No Python was recorded.
  if (!view.has_main()) return work;
  const RowView& row = view.rows()[view.main()];
  std::vector<bool> is_wanted(row.own.size());
  for (size_t i = 0; i < is_wanted.size(); ++i) is_wanted[i] = is_work(row, i);
  work.busiest = busiest_of(view, view.main(), is_wanted);
  return work;
}

}  // namespace torchprof::formats
