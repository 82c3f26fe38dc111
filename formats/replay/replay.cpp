#include "formats/replay/replay.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "formats/io/sum.h"
#include "formats/replay/replay_impl.h"
#include "formats/replay/slice_filter.h"

namespace torchprof::formats {
namespace {

// Whether the record changes what is open on its thread.
bool changes_stack(Kind kind) {
  return kind != Kind::OpInputs && kind != Kind::Collective && kind != Kind::Memory && kind != Kind::OutOfMemory &&
         kind != Kind::AllocationSite && kind != Kind::NativeStack && kind != Kind::AllocationStack && !is_gpu(kind);
}

}  // namespace

Replay::Impl::Impl(const Process& process) : process_(process), names_(process), steps_(process, names_) {
  for (const Track& track : process.tracks) {
    const uint32_t tid = track.tid != 0 ? track.tid : next_tid_++;
    rows_.push_back({tid, tid, track.name, track.python_name, false});
  }
  if (!process.gpu) return;
  gpu_.emplace(process, names_);
  for (const uint32_t number : gpu_->strangers()) {
    strangers_.push_back({.id = {}, .tid = number});
    rows_.push_back({number, number, {}, {}, false});
  }
}

ReplayStats Replay::Impl::run(Sink& sink) {
  sink_ = &sink;
  threads_.reserve(process_.tracks.size() + strangers_.size());
  using Next = std::pair<Ticks, size_t>;  // time of the next record, thread
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  for (const Track& track : process_.tracks) {
    const size_t i = threads_.size();
    ReplayThread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(i));
    if (gpu_) thread.calls = gpu_->queue_of(track.id, track.tid);
    thread.stack.min_ns = process_.selection.min_ns;
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), i);
  }
  for (const Track& track : strangers_) {
    ReplayThread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(threads_.size()));
    thread.calls = gpu_->queue_of({}, track.tid);
  }
  while (!queue.empty()) {
    ReplayThread& thread = threads_[queue.top().second];
    queue.pop();
    // Most threads run for long stretches alone: the queue is asked again only when another one is due.
    const Ticks until = queue.empty() ? Ticks{~uint64_t{0}} : queue.top().first;
    do {
      const int64_t t = to_ns(thread.cursor.time());
      if (process_.windows.empty() || is_in_window(t)) handle(thread, thread.cursor.record(), t);
      thread.cursor.advance();
    } while (!thread.cursor.done() && thread.cursor.time() <= until);
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), static_cast<size_t>(&thread - threads_.data()));
  }
  if (process_.windows.empty()) finish_all(process_.capture_end.value, false);
  if (window_ < process_.windows.size())
    finish_all(process_.windows[window_].end.value, process_.windows[window_].closed);
  if (gpu_) {
    gpu_->finish(sink);
    stats_.cut_calls = gpu_->stats().cut_calls;
    stats_.most_cut_ns = gpu_->stats().most_cut_ns;
  }
  return stats_;
}

// Closes the windows that end before `t`, with all that is open in them. False: `t` lies in none, the event was on its
// way when a window closed.
bool Replay::Impl::is_in_window(int64_t t) {
  const auto& windows = process_.windows;
  while (window_ < windows.size() && t > windows[window_].end.value) {
    finish_all(windows[window_].end.value, true);
    ++window_;
    is_begun_ = false;
  }
  if (window_ == windows.size() || t < windows[window_].begin.value) return false;
  if (!is_begun_) {
    steps_.restart(windows[window_].step);
    cpu_memory_.restart();
    is_begun_ = true;
    is_marked_ = process_.has_windows_of_steps();
    if (gpu_) gpu_->window_begins(windows[window_].begin.value);
  }
  return true;
}

void Replay::Impl::handle(ReplayThread& thread, const RecordView& record, int64_t recorded) {
  int64_t t = shown(recorded);
  if (!thread.begun) [[unlikely]]
    begin_thread(thread, t);
  if (is_begun_ && !is_marked_) [[unlikely]]
    mark_window(thread);
  if (record.kind() == Kind::Restate) return restate(thread, record.as<Restate>(), record.header());
  const bool is_stated = thread.stated_left > 0;
  if (is_stated) {
    --thread.stated_left;
    // What the chunk before this one says is known from there.
    const Ticks begin{*thread.stated_begins++};
    if (thread.cursor.is_next()) return;
    t = std::max(thread.last, shown(to_ns(begin)));
  } else {
    thread.last = t;
    // The filter of a selection cuts calls at its edges; what they are in is told by when they were.
    if (thread.calls != nullptr && thread.calls->next <= recorded && changes_stack(record.kind())) [[unlikely]]
      calls_until(thread, recorded, false);
  }
  if (thread.restating && record.kind() != Kind::PythonFrame) [[unlikely]]
    end_restating(thread);
  switch (record.kind()) {
    case Kind::PythonBegin: {
      const auto& r = record.as<PythonBegin>();
      return begin_python(thread, r.function, r.object, false, t);
    }
    case Kind::PythonFrame: {
      const auto& r = record.as<PythonFrame>();
      if (thread.restating && is_still_open(thread, r)) return;
      return begin_python(thread, r.function, r.object, !is_stated, t);
    }
    case Kind::PythonEnd:
      return end_python(thread, record.as<PythonEnd>().function, t);
    case Kind::PythonSync:
      return sync_python(thread, t);
    case Kind::CCallBegin:
      return begin_c_call(thread, record.as<CCallBegin>().name, {}, t);
    case Kind::CCallBeginAt: {
      const CallSiteId site = record.as<CCallBeginAt>().site;
      const auto& sites = process_.call_sites;
      return begin_c_call(thread, site.value < sites.size() ? sites[site.value].name : StringId{}, site, t);
    }
    case Kind::GcBegin:
      return begin_gc(thread, record.as<GcBegin>().generation, t);
    case Kind::GcEnd:
      return end_gc(thread, record.as<GcEnd>(), t);
    case Kind::BlindBegin:
      return begin_blind(record.as<BlindBegin>(), t);
    case Kind::BlindEnd:
      return end_blind(record.as<BlindEnd>(), t);
    case Kind::CCallEnd:
      return end_c_call(thread, t);
    case Kind::OpBegin:
      return begin_op(thread, record.as<OpBegin>(), t);
    case Kind::OpInputs:
      if (const int32_t top = thread.stack.top_op(); top >= 0 && thread.stack[top].key == thread.last_op_key)
        thread.stack[top].inputs = record.as<OpInputs>().inputs;
      return;
    case Kind::Collective:
      if (const int32_t top = thread.stack.top_op(); top >= 0 && thread.stack[top].key == thread.last_op_key) {
        thread.stack[top].collective = record.as<Collective>().info;
        thread.stack[top].collective_sequence = record.as<Collective>().sequence;
      }
      return;
    case Kind::NativeStack:
      if (const int32_t top = thread.stack.top_op(); top >= 0 && thread.stack[top].key == thread.last_op_key)
        thread.stack[top].native = record.as<NativeStack>().innermost;
      return;
    case Kind::NvtxInfo:
      if (const int32_t top = thread.stack.top_op();
          top >= 0 && thread.stack[top].key == thread.last_op_key && thread.stack[top].scope == OpScope::kNvtx)
        nvtx_.began(thread.last_op_key, record.as<NvtxInfo>().attributes);
      return;
    case Kind::NvtxMark: {
      const auto& r = record.as<NvtxMark>();
      return sink_->mark({.row = thread.row, .time = {t}, .name = names_.string(r.name), .attributes = r.attributes});
    }
    case Kind::Memory:
      return memory(thread, record.as<Memory>(), false, t);
    case Kind::OutOfMemory:
      static_assert(sizeof(OutOfMemory) == sizeof(Memory));
      return memory(thread, record.as<Memory>(), true, t);
    case Kind::AllocationSite:
      thread.site = record.as<AllocationSite>();
      thread.site_time = t;
      return;
    case Kind::AllocationStack:
      thread.native = record.as<AllocationStack>().innermost;
      return;
    case Kind::OpEnd:
      return end_op(thread, record.as<OpEnd>().key, t);
    case Kind::OpEndHere:
      return end_op_here(thread, record.as<OpEndHere>().key, t);
    case Kind::ThreadEnd:
      return end_thread(thread, t);
    default:
      return;  // definitions: load() has them
  }
}

// On the thread that is the first to say something in it.
void Replay::Impl::mark_window(const ReplayThread& thread) {
  const Window& window = process_.windows[window_];
  is_marked_ = true;
  std::string name = "Window #";
  name += std::to_string(window.number);
  sink_->mark(
      {.row = thread.row, .time = window.begin, .name = names_.intern(name), .attributes = {}, .is_window = true});
}

// The kernel gives the id of a dead thread to a new one: on one row the first must have ended before the second begins.
void Replay::Impl::begin_thread(ReplayThread& thread, int64_t t) {
  thread.begun = true;
  Row& row = rows_[thread.row];
  const auto [it, is_first] = last_of_tid_.try_emplace(row.tid, thread.row);
  if (is_first) return;
  ReplayThread& before = threads_[it->second];
  if (before.cursor.done()) {
    end_thread(before, t);
    it->second = thread.row;
  } else {
    row.tid = next_tid_++;
  }
}

void Replay::Impl::push(ReplayThread& thread, const Span& span) {
  thread.stack.push(span);
  steps_.begun(thread.row, thread.stack);
}

// `span` was the one at `i` and has ended on the thread's own row.
void Replay::Impl::took(const ReplayThread& thread, int32_t i, const Span& span, int64_t end, bool finished) {
  if (const auto mark = steps_.ended(thread.row, thread.stack, i, span, end, finished)) emit_step(*mark);
}

void Replay::Impl::emit_step(const StepTracker::Mark& mark) {
  sink_->step({.number = mark.number,
               .row = steps_.thread(),
               .begin = {mark.begin},
               .end = {mark.end},
               .external_id = ++stats_.external_ids,
               .ended_by = mark.ended_by});
}

// CUPTI's number of a thread may go to another one: what is left then belongs to the one that had it.
void Replay::Impl::calls_until(ReplayThread& thread, int64_t t, bool is_last) {
  const auto self = static_cast<size_t>(&thread - threads_.data());
  GpuCallQueue& queue = *thread.calls;
  if (queue.owner != self && queue.owner < threads_.size()) {
    const ReplayThread& before = threads_[queue.owner];
    if (!before.cursor.done()) return;
    gpu_->until(queue, thread.begun ? before.last : t, true, before.row, before.stack, *sink_);
  }
  queue.owner = self;
  gpu_->until(queue, t, is_last, thread.row, thread.stack, *sink_);
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
  if (memory.device_type == 0 && !is_out_of_memory) {
    event.is_mapped = cpu_memory_.is_mapping(memory);
    event.allocated = event.is_mapped ? 0 : cpu_memory_.total(memory, !thread.cursor.is_next());
  }
  const ThreadStack& stack = thread.stack;
  event.stack = &stack;
  event.native = std::exchange(thread.native, {});
  if (const int32_t op = stack.top_op(); op >= 0) {
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
  sink_->memory(event);
}

// After a gap all that is known of the thread is what its chunk says at its beginning; what was open before the gap
// ends with the last that was seen of it.
void Replay::Impl::restate(ReplayThread& thread, const Restate& restate, RecordHeader header) {
  thread.stated_left = restate.count_of(header);
  thread.stated_begins = restate.begins();
  if (thread.cursor.is_next()) return;
  stats_.lost_ends += static_cast<uint64_t>(thread.stack.size());
  end_thread(thread, thread.last);
}

// ---- ends ------------------------------------------------------------------------------------------------

void Replay::Impl::end_thread(ReplayThread& thread, int64_t t) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    const int32_t i = stack.size() - 1;
    if (!stack[i].is_op()) {
      close_frame(thread, i, t, true);
    } else if (stack[i].is_async) {
      detach(thread, i);  // may still end on another thread
    } else {
      close_op(thread, i, t);
    }
  }
  steps_.thread_ended(thread.row, t);
}

void Replay::Impl::finish_all(int64_t t, bool by_window) {
  t = shown(t);
  for (ReplayThread& thread : threads_) finish(thread, std::max(thread.last, t), by_window);
  for (const StepTracker::Mark& mark : steps_.finish(t)) emit_step(mark);
}

// `by_window`: nothing is missing, and the step that closed the window has ended.
void Replay::Impl::finish(ReplayThread& thread, int64_t t, bool by_window) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    stats_.unfinished += !by_window;
    const int32_t i = stack.size() - 1;
    const int64_t end = std::max(stack[i].begin, t);
    end_module_call(stack, i, end);
    const Span span = stack.take(i);
    stack.ended(span, end - span.begin);
    emit(thread, thread.row, span, end, false);
    took(thread, i, span, end, by_window);
  }
  steps_.thread_ended(thread.row, t);
  while (!thread.detached.empty()) {
    stats_.unfinished += !by_window;
    end_detached(thread, thread.detached.size() - 1, t, false);
  }
}

void Replay::Impl::emit(const ReplayThread& thread, uint32_t row, const Span& span, int64_t end, bool finished) {
  const bool is_own_row = row == thread.row;
  uint64_t parent = 0;
  if (!span.is_op() && span.below_python >= 0) parent = thread.stack[span.below_python].id;
  const bool is_nvtx = span.is_op() && span.scope == OpScope::kNvtx;
  const NvtxAttributes nvtx = is_nvtx ? nvtx_.take(span.key) : NvtxAttributes{};
  // The slice is off its stack; what is below it is not.
  ObjectId calling_module;
  if (span.is_module_call) {
    int32_t i = span.below_python;
    while (i >= 0 && !thread.stack[i].is_module_call) i = thread.stack[i].below_python;
    if (i >= 0) calling_module = thread.stack[i].module;
  }
  sink_->slice({.kind = span.kind,
                .finished = finished,
                .preexisting = span.preexisting,
                .outermost = span.outermost,
                .row = row,
                .name = span.name,
                .begin = {span.begin},
                .end = {end},
                .module = span.module,
                .is_backward = span.is_backward,
                .self_ns = span.is_async ? 0 : std::max<int64_t>(0, difference(end - span.begin, span.child_ns)),
                .own_ns = is_own_row ? std::max<int64_t>(0, difference(end - span.begin, span.inside_ns)) : 0,
                .around = is_own_row && span.below() >= 0 ? &thread.stack[0] : nullptr,
                .depth = is_own_row ? static_cast<uint32_t>(span.below() + 1) : 0,
                .python_id = span.is_op() ? 0 : span.id,
                .python_parent = parent,
                .object = span.object,
                .calling_module = calling_module,
                .module_self_ns = std::max<int64_t>(0, difference(end - span.begin, span.module_child_ns)),
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
                .nvtx = is_nvtx ? &nvtx : nullptr});
}

Replay::Replay(const Process& process) : impl_(std::make_unique<Impl>(process)) {}
Replay::~Replay() = default;
ReplayStats Replay::run(Sink& sink) {
  if (impl_->selection().is_all()) return impl_->run(sink);
  SliceFilter filter(impl_->selection(), impl_->rows(), sink);
  return impl_->run(filter);
}
Names& Replay::names() { return impl_->names(); }
const std::vector<Row>& Replay::rows() const { return impl_->rows(); }

}  // namespace torchprof::formats
