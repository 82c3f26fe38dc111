#include "formats/replay/slice_filter.h"

#include <algorithm>

namespace torchprof::formats {

bool SliceFilter::shows_row(uint32_t row) {
  if (selection_.threads.empty()) return true;
  if (row >= shown_rows_.size()) shown_rows_.resize(row + 1);
  int8_t& known = shown_rows_[row];
  if (known == 0) {
    const Row& r = rows_[row];
    const bool is_named = std::ranges::any_of(selection_.threads, [&r](const std::string& thread) {
      return thread == std::to_string(r.sort_tid) || thread == r.thread_name || thread == r.python_name;
    });
    known = is_named ? 1 : -1;
  }
  return known > 0;
}

void SliceFilter::slice(const Slice& s) {
  last_was_shown_ = shows(s.begin, s.end) && shows_row(s.row);
  if (!last_was_shown_) return;
  if (s.kind == SliceKind::kOperator && s.sequence >= 0 && s.fwd_thread == 0)
    shown_forwards_.emplace(s.row, s.drawn_begin.value);
  sink_.slice(s);
}

// A flow comes after the slice at which it ends.
void SliceFilter::flow(const Flow& f) {
  if (shown_forwards_.erase({f.from_row, f.from.value}) != 0 && last_was_shown_) sink_.flow(f);
}

void SliceFilter::step(const StepMark& m) {
  if (shows(m.begin, m.end) && shows_row(m.row)) sink_.step(m);
}

void SliceFilter::memory(const MemoryEvent& e) {
  if (shows_moment(e.time) && shows_row(e.row)) sink_.memory(e);
}

void SliceFilter::python_memory(const MemoryEvent& e) {
  if (shows_moment(e.time) && shows_row(e.row)) sink_.python_memory(e);
}

void SliceFilter::mark(const Mark& m) {
  if (shows_moment(m.time) && shows_row(m.row)) sink_.mark(m);
}

void SliceFilter::gpu_call(const GpuCall& call) {
  shown_call_ = nullptr;
  if (!shows(call.begin, call.end) || !shows_row(call.row)) return;
  shown_call_ = &call;
  call_ = call;
  call_.begin.value = std::max(call.begin.value, selection_.begin);
  call_.end.value = std::min(call.end.value, selection_.end);
  sink_.gpu_call(call_);
}

void SliceFilter::gpu_activity(const GpuActivity& activity) {
  const bool has_shown_call = activity.call != nullptr && activity.call == shown_call_;
  if (!shows(activity.begin, activity.end) || (!selection_.threads.empty() && !has_shown_call)) return;
  GpuActivity cut = activity;
  cut.begin.value = std::max(activity.begin.value, selection_.begin);
  cut.end.value = std::min(activity.end.value, selection_.end);
  cut.call = has_shown_call ? &call_ : nullptr;
  sink_.gpu_activity(cut);
}

}  // namespace torchprof::formats
