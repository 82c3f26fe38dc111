#include "formats/replay/replay_impl.h"

#include <algorithm>
#include <string>

namespace torchprof::formats {

void Replay::Impl::begin_python(ReplayThread& thread, FunctionId function, ObjectId object, bool preexisting,
                                int64_t t) {
  if (begins_forked_worker(function)) [[unlikely]]
    leave_what_was_forked(thread, t);
  Span span{.kind = SliceKind::kPython};
  span.preexisting = preexisting;
  span.name = names_.function(function, object);
  span.function = function;
  span.object = object;
  span.line = line_here(thread, true);
  span.is_function_of_program = process_.has_lines(function);
  if (is_backward_function(function)) backward_line_ = span.line;
  if (const ObjectDef* def = object ? names_.object(object) : nullptr;
      def != nullptr && def->kind == ObjectKind::kModule) {
    span.module = object;
    span.has_own_module = span.is_module_call = true;
  }
  span.begin = t;
  span.id = ++stats_.python_ids;
  // These are the frames that were on the stack when the capture began. An annotation that is open already opened the
  // window from inside them, so they go below it. (Below an operator they do not: a C++ thread may have called Python
  // from it.)
  const int32_t next = thread.stack.top_python() + 1;
  if (preexisting && thread.open_frames.empty() && !steps_.is_waiting(thread.row) && next < thread.stack.size() &&
      is_annotation(thread.stack[next].scope) && !thread.stack[next].is_apart)
    return thread.stack.push_below_ops(span);
  push(thread, span);
}

void Replay::Impl::begin_c_call(ReplayThread& thread, StringId name, CallSiteId site, int64_t t) {
  Span span{.kind = SliceKind::kCCall};
  span.name = names_.string(name);
  span.site = site;
  span.line = line_here(thread, false);
  if (!span.line && site && site.value < process_.call_sites.size()) {
    const CallSiteDef& def = process_.call_sites[site.value];
    if (def.line != 0 && process_.has_lines(def.function)) span.line = names_.place(def.function, def.line);
  }
  span.begin = t;
  span.id = ++stats_.python_ids;
  push(thread, span);
}

void Replay::Impl::end_python(ReplayThread& thread, FunctionId function, int64_t t) {
  ThreadStack& stack = thread.stack;
  int32_t i = stack.top_python();
  while (i >= 0 && (stack[i].kind != SliceKind::kPython || stack[i].function != function)) i = stack[i].below_python;
  if (i < 0) {
    ++stats_.unmatched_ends;
    return;
  }
  while (stack.top_python() > i) {
    ++stats_.lost_ends;
    close_frame(thread, stack.top_python(), t, true);
  }
  close_frame(thread, i, t, true);
}

void Replay::Impl::end_c_call(ReplayThread& thread, int64_t t) {
  const int32_t i = thread.stack.top_python();
  if (i >= 0 && thread.stack[i].kind == SliceKind::kCCall) {
    close_frame(thread, i, t, true);
  } else {
    ++stats_.unmatched_ends;
  }
}

// The last window begins, which was never closed.
void Replay::Impl::begin_stated(int64_t t) {
  for (const StatedFrames& stated : stated_) {
    const auto thread = std::ranges::find(threads_.rbegin(), threads_.rend(), stated.tid,
                                          [](const ReplayThread& each) { return each.track->tid; });
    if (thread == threads_.rend()) continue;
    if (!thread->begun) begin_thread(*thread, t);
    thread->last = std::max(thread->last, t);
    for (const StatedFrame& frame : stated.frames) begin_python(*thread, frame.function, frame.object, true, t);
  }
}

void Replay::Impl::sync_python(ReplayThread& thread, int64_t t) {
  thread.restating = true;
  thread.restated = 0;
  thread.restated_at = t;
  thread.open_frames.clear();
  for (int32_t i = thread.stack.top_python(); i >= 0; i = thread.stack[i].below_python) {
    if (thread.stack[i].kind == SliceKind::kPython)
      thread.open_frames.push_back({thread.stack[i].id, thread.stack[i].function, thread.stack[i].object});
  }
  std::ranges::reverse(thread.open_frames);
}

// All that multiprocessing lets a forked child do is inside of this function: Lib/multiprocessing/process.py, 3.10 to
// 3.14; from popen_fork.py, or in a fork server from forkserver.py, which both call os._exit() behind it.
bool Replay::Impl::begins_forked_worker(FunctionId function) const {
  if (process_.forked_from.empty() || function.value >= process_.functions.size()) return false;
  const FunctionDef& def = process_.functions[function.value];
  return def.kind == FunctionKind::kWorker && process_.string(def.name) == "_bootstrap";
}

// Those that have just been stated were never this process's own.
void Replay::Impl::leave_what_was_forked(ReplayThread& thread, int64_t t) {
  ThreadStack& stack = thread.stack;
  for (int32_t i = stack.top_python(); i >= 0; i = stack.top_python()) {
    if (stack[i].begin < t) {
      close_frame(thread, i, t, true);
    } else {
      stack.take(i);
      for (int32_t k = i; k < stack.size(); ++k) stack.inherit_module(k);
    }
  }
}

bool Replay::Impl::is_still_open(ReplayThread& thread, const PythonFrame& frame) {
  // The parent's frames, which are stated again and were left.
  if (thread.restated == 0 && !thread.open_frames.empty() && frame.function != thread.open_frames.front().function &&
      begins_forked_worker(thread.open_frames.front().function))
    return true;
  if (thread.restated < thread.open_frames.size()) {
    const auto& open = thread.open_frames[thread.restated];
    if (open.function == frame.function && open.object == frame.object) {
      ++thread.restated;
      return true;
    }
  }
  end_restating(thread);
  return false;
}

// Frames above those that were found again have ended at an unknown time, here at the latest.
void Replay::Impl::end_restating(ReplayThread& thread) {
  thread.restating = false;
  const uint64_t kept = thread.restated == 0 ? 0 : thread.open_frames[thread.restated - 1].id;
  for (int32_t i = thread.stack.top_python(); i >= 0 && thread.stack[i].id != kept; i = thread.stack.top_python())
    close_frame(thread, i, thread.restated_at, true);
}

// ---- the garbage collector, and other profilers ------------------------------------------------------------

bool Replay::Impl::close_innermost(ReplayThread& thread, SliceKind kind, int64_t t) {
  ThreadStack& stack = thread.stack;
  int32_t i = stack.top_python();
  while (i >= 0 && stack[i].kind != kind) i = stack[i].below_python;
  if (i < 0) {
    ++stats_.unmatched_ends;
    return false;
  }
  while (stack.top_python() >= i) close_frame(thread, stack.top_python(), t, true);
  return true;
}

void Replay::Impl::begin_gc(ReplayThread& thread, uint32_t generation, int64_t t) {
  Span span{.kind = SliceKind::kGc};
  span.name = names_.intern(std::string(kPythonGc));
  span.generation = generation;
  span.line = line_here(thread, true);
  span.begin = t;
  span.id = ++stats_.python_ids;
  thread.stack.push(span);
}

void Replay::Impl::end_gc(ReplayThread& thread, const GcEnd& end, int64_t t) {
  ThreadStack& stack = thread.stack;
  for (int32_t i = stack.top_python(); i >= 0; i = stack[i].below_python) {
    if (stack[i].kind != SliceKind::kGc) continue;
    stack[i].collected = end.collected;
    stack[i].uncollectable = end.uncollectable;
    break;
  }
  close_innermost(thread, SliceKind::kGc, t);
}

ReplayThread* Replay::Impl::thread_of(TrackId track, int64_t t) {
  if (index_of_track_.empty()) {
    for (size_t i = 0; i < process_.tracks.size(); ++i) index_of_track_.emplace(process_.tracks[i].id, i);
  }
  const auto it = index_of_track_.find(track);
  if (it == index_of_track_.end()) return nullptr;
  ReplayThread& thread = threads_[it->second];
  if (!thread.begun) begin_thread(thread, t);
  if (thread.restating) end_restating(thread);
  thread.last = std::max(thread.last, t);
  return &thread;
}

void Replay::Impl::begin_blind(const BlindBegin& begin, int64_t t) {
  ReplayThread* thread = thread_of(begin.track, t);
  if (!thread) return;
  Span span{.kind = SliceKind::kBlind};
  span.name = names_.intern(std::string("Python calls not recorded: ").append(process_.string(begin.by)));
  span.begin = t;
  span.id = ++stats_.python_ids;
  thread->stack.push(span);
}

void Replay::Impl::end_blind(const BlindEnd& end, int64_t t) {
  if (ReplayThread* thread = thread_of(end.track, t)) close_innermost(*thread, SliceKind::kBlind, t);
}

void Replay::Impl::end_module_call(ThreadStack& stack, int32_t i, int64_t t) {
  if (!stack[i].is_module_call) return;
  stack.recomputed(i, t - stack[i].recorded_begin());
  if (const int32_t caller = stack.module_call_below(i); caller >= 0)
    add_to(stack[caller].module_child_ns, t - stack[i].recorded_begin());
}

// Closes the innermost frame or C call. Only operators are above it.
void Replay::Impl::close_frame(ReplayThread& thread, int32_t i, int64_t t, bool finished) {
  const int64_t drawn_end = cut_before(thread, i, t);
  end_module_call(thread.stack, i, t);
  close(thread, i, t, drawn_end, finished, finished);
}

}  // namespace torchprof::formats
