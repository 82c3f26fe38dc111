#include "formats/advice/step_view.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/timeline/unit_names.h"

namespace torchprof::formats {
namespace {

Activity activity_of(const TimelineSpan& s, std::string_view name) {
  if (is_import(s, name)) return Activity::kImporting;
  switch (s.kind) {
    case SpanKind::kGc:
      return Activity::kCollecting;
    case SpanKind::kOperator:
    case SpanKind::kAnnotation:
      return activity_of_operation(name, s.kind == SpanKind::kAnnotation);
    case SpanKind::kCall:
      return activity_of_call(name);
    case SpanKind::kModule:
      return Activity::kProgram;
    case SpanKind::kPython:
    case SpanKind::kCCall:
      break;
  }
  return activity_of_python(name);
}

}  // namespace

bool is_copy_to_pageable(std::string_view name) { return name.find("-> Pageable") != name.npos; }

uint32_t most_of(const PlaceSums& sums) {
  uint32_t most = 0;
  int64_t ns = 0;
  for (const auto& [place, sum] : sums)
    if (place != 0 && sum.ns > ns) {
      most = place;
      ns = sum.ns;
    }
  return most;
}

StepView::StepView(const Timeline& timeline) : timeline_(timeline), steps_(timeline.steps) {
  if (steps_.empty()) steps_.push_back({timeline.begin, std::max(timeline.end, timeline.begin + 1)});
  std::vector<int64_t> lengths;
  for (const StepSpan& s : steps_) {
    within_.add(s.begin, s.end);
    lengths.push_back(s.end - s.begin);
    add_to(all_ns_, lengths.back());
  }
  typical_ns_ = median_of(std::move(lengths));
  within_.settle();
  for (const TimelineWork& w : timeline.work) {
    busy_.add(w.begin, w.end);
    if (w.kind == WorkKind::kKernel && !is_communication_kernel(text(w.name))) kernels_.add(w.begin, w.end);
  }
  busy_.settle();
  kernels_.settle();
  busy_ns_ = in_steps(busy_);
  kernels_ns_ = in_steps(kernels_);
  rows_.resize(timeline.rows.size());
  for (uint32_t row = 0; row < rows_.size(); ++row)
    if (!timeline.rows[row].is_overflow) look_at(row);
  mark_waiting_copies();
  find_main();
}

int64_t StepView::in_steps(const Intervals& settled) const {
  int64_t ns = 0;
  for (const StepSpan& s : steps_) add_to(ns, settled.length(s.begin, s.end));
  return ns;
}

void StepView::add_to_steps(int64_t begin, int64_t end, int sign, std::vector<int64_t>& by_step) const {
  auto step = std::ranges::upper_bound(steps_, begin, {}, &StepSpan::end);
  for (; step != steps_.end() && step->begin < end; ++step)
    add_to(by_step[static_cast<size_t>(step - steps_.begin())],
           sign * (std::min(end, step->end) - std::max(begin, step->begin)));
}

// A copy to memory that is not pinned is over when its call comes back: the call waits for all that the stream has to
// do before it. item() and cpu() do so.
void StepView::mark_waiting_copies() {
  for (const TimelineWork& w : timeline_.work) {
    if (w.kind != WorkKind::kCopy || w.row == kNoSpan || rows_[w.row].activity.empty()) continue;
    Activity& activity = rows_[w.row].activity[w.call];
    if (activity == Activity::kLaunches && is_copy_to_pageable(text(w.name))) activity = Activity::kWaitsForGpu;
  }
}

// Whether the row's spans are what recurs: another thread may wait for each of them, as the client of a server does.
bool StepView::has_units(uint32_t r) const {
  if (timeline_.unit.empty()) return false;
  size_t begun = 0;
  for (const StepSpan& s : timeline_.steps)
    begun += std::ranges::binary_search(timeline_.rows[r].spans, s.begin, {}, &TimelineSpan::begin);
  return begun * 2 > timeline_.steps.size();
}

void StepView::find_main() {
  std::tuple<bool, bool, bool, int64_t> most;
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    const auto& spans = timeline_.rows[r].spans;
    if (timeline_.rows[r].is_overflow || spans.empty()) continue;
    int64_t covered = 0, worked = 0;
    bool has_worked = false;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].parent == kNoSpan) add_to(covered, in_steps(spans[i].begin, spans[i].end));
      const Activity activity = rows_[r].activity[i];
      const bool is_operation = spans[i].kind == SpanKind::kOperator || spans[i].kind == SpanKind::kAnnotation;
      if ((is_operation && activity != Activity::kCollective) || activity >= Activity::kWaitsForGpu) has_worked = true;
      // Threads that wait do so in Python's library, also where the program has told them to.
      if (is_operation || (rows_[r].place[i] != 0 && activity != Activity::kWaiting)) add_to(worked, rows_[r].own[i]);
    }
    // Other threads run operators too (the backward), but what runs the program is around them.
    const std::tuple score(has_units(r), has_worked && covered >= all_ns_ / 2, has_worked, worked);
    if (main_ != kNoSpan && score <= most) continue;
    most = score;
    main_ = r;
  }
}

void StepView::look_at(uint32_t r) {
  const std::vector<TimelineSpan>& spans = timeline_.rows[r].spans;
  RowView& view = rows_[r];
  view.own.resize(spans.size());
  view.idle.resize(has_gpu() ? spans.size() : 0);
  view.activity.resize(spans.size());
  view.place.resize(spans.size());
  by_name_.resize(timeline_.names());
  for (uint32_t i = 0; i < spans.size(); ++i) {
    const TimelineSpan& s = spans[i];
    const bool has_parent = s.parent != kNoSpan;
    const int64_t ns = in_steps(s.begin, s.end);
    view.own[i] = ns;
    if (has_parent) view.own[s.parent] -= ns;
    if (has_gpu() && ns != 0) {
      int64_t idle = 0;
      // Long spans are around many steps.
      if (steps_.size() > 1)
        for (auto step = std::ranges::upper_bound(steps_, s.begin, {}, &StepSpan::end);
             step != steps_.end() && step->begin < s.end; ++step) {
          const int64_t begin = std::max(step->begin, s.begin), end = std::min(step->end, s.end);
          add_to(idle, end - begin - busy_.length(begin, end));
        }
      else
        idle = ns - busy_.length(std::max(s.begin, steps_[0].begin), std::min(s.end, steps_[0].end));
      view.idle[i] = idle;
      if (has_parent) view.idle[s.parent] -= idle;
    }
    const Activity around = has_parent ? view.activity[s.parent] : Activity::kProgram;
    const bool is_program = s.kind == SpanKind::kPython && timeline_.is_program(s.name);
    Activity own = Activity::kUnseen;
    if (s.kind == SpanKind::kCall) {
      own = activity_of(s, text(s.name));
    } else {
      Activity& known = by_name_[s.name];
      if (known == Activity::kUnseen) known = activity_of(s, text(s.name));
      own = known;
      // The program's own functions are also called by operators.
      if (own == Activity::kProgram && around == Activity::kOperator && !is_program) own = Activity::kOperator;
    }
    // A program's module may do all its work while it is imported.
    const bool is_apart = around == Activity::kImporting && is_program;
    view.activity[i] = covers(around) && !is_apart ? around : own;
    const uint32_t outer = has_parent ? view.place[s.parent] : 0;
    if (s.place != 0)
      view.place[i] = s.place;
    else if (s.kind == SpanKind::kPython && timeline_.is_program(s.name))
      view.place[i] = s.name;
    else
      view.place[i] = outer;
  }
  for (int64_t& ns : view.own) ns = std::max<int64_t>(0, ns);
  for (int64_t& ns : view.idle) ns = std::max<int64_t>(0, ns);
}

}  // namespace torchprof::formats
