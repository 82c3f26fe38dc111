#include <algorithm>
#include <string>
#include <utility>

#include "formats/io/sum.h"
#include "formats/replay/replay_impl.h"

namespace torchprof::formats {

void Replay::Impl::emit(const ReplayThread& thread, uint32_t row, const Span& span, int64_t end, int64_t drawn_end,
                        bool finished) {
  const bool is_own_row = row == thread.row;
  const int64_t begin = span.recorded_begin();
  // Those below it on the stack are around it, also where it is drawn elsewhere; but not those of a thread that ended.
  const bool has_around = span.below() >= 0 && span.below() < thread.stack.size();
  uint64_t parent = 0;
  if (!span.is_op() && span.below_python >= 0) parent = thread.stack[span.below_python].id;
  const bool is_nvtx = span.is_op() && span.scope == OpScope::kNvtx;
  const NvtxAttributes nvtx = is_nvtx ? nvtx_.take(span.key) : NvtxAttributes{};
  // The span has been taken off the stack; those below it are still there.
  ObjectId calling_module;
  if (span.is_module_call) {
    int32_t i = span.below_python;
    while (i >= 0 && !thread.stack[i].is_module_call) i = thread.stack[i].below_python;
    if (i >= 0) calling_module = thread.stack[i].module;
  }
  const int64_t self = span.is_async ? 0 : std::max<int64_t>(0, difference(end - begin, span.child_ns));
  sink_->slice({.kind = span.kind,
                .finished = finished,
                .preexisting = span.preexisting,
                .outermost = span.outermost,
                .is_async = span.is_async,
                .is_program = span.is_function_of_program,
                .row = row,
                .name = span.name,
                .begin = {begin},
                .end = {end},
                .drawn_begin = {span.begin},
                .drawn_end = {drawn_end},
                .module = span.module,
                .is_backward = span.is_backward,
                .is_recompute = span.is_recompute && !span.is_backward,
                .self_ns = self,
                .calls_ns = std::min(self, span.calls_ns),
                .recompute_ns = std::min(self, span.recompute_ns),
                .own_ns = is_own_row ? std::max<int64_t>(0, difference(drawn_end - span.begin, span.inside_ns)) : 0,
                .around = has_around ? &thread.stack[0] : nullptr,
                .depth = has_around ? static_cast<uint32_t>(span.below() + 1) : 0,
                .line = span.line,
                .python_id = span.is_op() ? 0 : span.id,
                .python_parent = parent,
                .object = span.object,
                .calling_module = calling_module,
                .module_self_ns = std::max<int64_t>(0, difference(end - begin, span.module_child_ns)),
                .site = span.site,
                .generation = span.generation,
                .collected = span.collected,
                .uncollectable = span.uncollectable,
                .scope = span.scope,
                .external_id = span.is_op() ? span.id : 0,
                .handle = span.handle,
                .sequence = span.sequence,
                .fwd_thread = span.fwd_thread,
                .recorded = span.recorded,
                .inputs = span.inputs,
                .collective = span.collective,
                .collective_sequence = span.collective_sequence,
                .native = span.native,
                .inductor = span.inductor,
                .nvtx = is_nvtx ? &nvtx : nullptr});
}

// `span` was taken from place `i` of the thread's row, or it was apart and `i` spans are open there.
void Replay::Impl::took(const ReplayThread& thread, int32_t i, const Span& span, int64_t end, bool finished) {
  for (const StepTracker::Mark& mark : steps_.ended(thread.row, thread.stack, i, span, end, finished)) emit_step(mark);
}

void Replay::Impl::emit_step(const StepTracker::Mark& mark) {
  sink_->step({.number = mark.number,
               .row = mark.is_apart ? overflow_row(threads_[mark.thread], mark.begin, mark.end) : mark.thread,
               .begin = {mark.begin},
               .end = {mark.end},
               .external_id = ++stats_.external_ids,
               .ended_by = mark.ended_by});
}

// CUPTI's number of a thread may pass on to another one: the calls before that belong to the thread that had it.
void Replay::Impl::calls_until(ReplayThread& thread, int64_t t, bool is_last) {
  const auto self = static_cast<size_t>(&thread - threads_.data());
  GpuCallQueue& queue = *thread.calls;
  if (queue.owner != self && queue.owner < threads_.size()) {
    const ReplayThread& before = threads_[queue.owner];
    if (!before.cursor.done()) return;
    CallRange ranges{*this, threads_[queue.owner]};
    gpu_->until(queue, thread.begun ? before.last : t, true, before.row, before.stack, *sink_, ranges);
  }
  queue.owner = self;
  CallRange ranges{*this, thread};
  gpu_->until(queue, t, is_last, thread.row, thread.stack, *sink_, ranges);
}

// It begins a moment before its call, so that it is the outer one, unless something else was there at that moment.
void Replay::Impl::CallRange::begin_range(NameId name, const InductorKernel* kernel, int64_t begin) {
  Span span{.kind = SliceKind::kOperator};
  span.scope = OpScope::kFunction;
  span.name = name;
  span.begin = begin - 1 > std::max(thread.last, end_of_last) ? begin - 1 : begin;
  span.id = ++impl.stats_.external_ids;
  span.line = impl.line_here(thread, false);
  span.inductor = kernel;
  impl.push(thread, span);
}

void Replay::Impl::CallRange::end_range(int64_t end) {
  end_of_last = end;
  impl.close_op(thread, thread.stack.size() - 1, end);
}

void Replay::Impl::memory(ReplayThread& thread, const Memory& memory, bool is_out_of_memory, int64_t t) {
  MemoryEvent event{.is_out_of_memory = is_out_of_memory,
                    .row = thread.row,
                    .time = {t},
                    .address = memory.address,
                    .bytes = memory.bytes,
                    .allocated = memory.allocated,
                    .reserved = memory.reserved,
                    .device_type = memory.device_type,
                    .device_index = memory.device_index};
  if (window_ < process_.windows.size()) event.window = &process_.windows[window_];
  if (memory.device_type == 0 && !is_out_of_memory) {
    event.is_mapped = cpu_memory_.is_mapping(memory);
    event.allocated = event.is_mapped ? 0 : cpu_memory_.total(memory, !thread.cursor.is_next());
    event.inherited = event.is_mapped ? 0 : std::min(event.allocated, cpu_memory_.inherited());
  }
  const bool is_of_python = memory.device_type == kPythonMemory;
  if (is_of_python) {
    python_memory_ = std::max<int64_t>(0, sum(python_memory_, memory.bytes));
    event.allocated = static_cast<uint64_t>(python_memory_);
  }
  const ThreadStack& stack = thread.stack;
  event.stack = &stack;
  event.native = std::exchange(thread.native, {});
  if (const int32_t op = stack.innermost_op(); op >= 0) {
    event.op = stack[op].name;
    event.outer_op = stack[op].outer_op;
  }
  int32_t python = stack.top_python();
  if (stack.size() > 0) event.module = stack[stack.size() - 1].module;
  while (python >= 0 && stack[python].kind != SliceKind::kPython) python = stack[python].below_python;
  if (thread.site_time == t) {
    event.function = thread.site.function;
    event.line = thread.site.line;
    thread.site_time = -1;
  } else if (python >= 0) {
    event.function = stack[python].function;
  }
  is_of_python ? sink_->python_memory(event) : sink_->memory(event);
}

// On the thread that has the first record in the window.
void Replay::Impl::mark_window(const ReplayThread& thread) {
  const Window& window = process_.windows[window_];
  is_marked_ = true;
  std::string name = "Window #";
  name += std::to_string(window.number);
  if (window.reason != WindowReason::kNone) name += std::string(": ") + reason_text(window.reason);
  sink_->mark(
      {.row = thread.row, .time = window.begin, .name = names_.intern(name), .attributes = {}, .is_window = true});
}

}  // namespace torchprof::formats
