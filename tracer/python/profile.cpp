#include "tracer/python/profile.h"

#include <pthread.h>

#include <utility>

#include "tracer/python/c_calls.h"
#include "tracer/python/calls.h"
#include "tracer/python/events.h"
#include "tracer/python/imports.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/site.h"
#include "tracer/window.h"

namespace torchprof::python {
namespace {

using session::current_buffer;
using session::now;

TraceFunction g_function = nullptr;  // nullptr: calls are not seen in this way
TraceFunction g_ours = nullptr;      // the same while a window is open, otherwise nullptr

// ---- what is known about threads ------------------------------------------------------------------------------------

// By thread state. The address may be used again for a later thread; its first event then sets `track` anew. Not an
// OpenTable: it never grows, and when it is full it forgets what can be learned again.
struct KnownThread {
  ThreadState* state = nullptr;
  TrackId track;                    // none: it has had no event yet
  TrackId blind_track;              // as in the BlindBegin
  StringId blind_by;                // none: the thread is ours
  TraceFunction pending = nullptr;  // the program's function, for which swallow_first() stands in
};
constexpr size_t kKnown = 1024;
KnownThread g_known_threads[kKnown];
size_t g_known_threads_count = 0;

KnownThread& known(ThreadState* state) noexcept {
  if (g_known_threads_count * 2 > kKnown) {  // threads come and go: only what cannot be learned again is kept
    g_known_threads_count = 0;
    KnownThread kept[kKnown];
    size_t count = 0;
    for (KnownThread& k : g_known_threads) {
      if (k.blind_by && count < kKnown / 4) kept[count++] = k;
      k = {};
    }
    for (size_t i = 0; i < count; ++i) known(kept[i].state) = kept[i];
  }
  for (size_t i = reinterpret_cast<uintptr_t>(state) >> 6;; ++i) {
    KnownThread& k = g_known_threads[i % kKnown];
    if (k.state == state) return k;
    if (k.state) continue;
    k.state = state;
    ++g_known_threads_count;
    return k;
  }
}

void after_fork_in_child() noexcept {
  for (KnownThread& k : g_known_threads) k.track = k.blind_track = {};
}

// The calling thread may have a state in more than one interpreter.
bool is_own(ThreadState* state) noexcept { return state == api().current_thread() || state == api().this_thread(); }

// ---- events ---------------------------------------------------------------------------------------------------------

const void* data_of(Frame* frame) noexcept {
  const Layout* at = layout();
  return at->frame_data ? read_pointer(frame, at->frame_data) : frame;
}

Object* code_of(Frame* frame) noexcept {  // borrowed: the frame holds it
  return static_cast<Object*>(read_pointer(data_of(frame), layout()->code));
}

CallPlace place_of(Frame* frame) noexcept {
  Object* code = code_of(frame);
  return {code, instruction_of(frame, code), frame};
}

[[gnu::noinline, gnu::cold]] void restate(ThreadBuffer& buffer, Frame* frame, bool has_begun) noexcept {
  known(api().current_thread()).track = buffer.track;
  if (has_begun)
    state_callers(buffer, frame);
  else
    state_stack(buffer, frame);
}

int on_profile(Object*, Frame* frame, int what, Object*) noexcept {
  if (what == kTraceCall) {
    ThreadBuffer* buffer = current_buffer();
    if (!buffer) [[unlikely]]
      return 0;
    if (on_thread(*buffer).epoch != g_epoch) [[unlikely]] {
      if (!is_in_brief(*buffer)) restate(*buffer, frame, true);
      if (is_in_brief(*buffer) && !begin_in_brief(*buffer, code_of(frame), frame)) return 0;
    }
    put_caller_line(*buffer, code_of(frame), frame);
    begin_call(*buffer, function_of(code_of(frame)), frame);
  } else if (what == kTraceReturn) {
    const Ticks time = now();
    ThreadBuffer* buffer = current_buffer();
    if (!buffer) [[unlikely]]
      return 0;
    if (on_thread(*buffer).epoch != g_epoch) [[unlikely]] {
      if (!is_in_brief(*buffer)) restate(*buffer, frame, false);
      if (is_in_brief(*buffer)) {
        end_in_brief(*buffer, code_of(frame), frame, time);
        return 0;
      }
    }
    end_call(*buffer, function_of(code_of(frame)), frame, time);
  }
  return 0;
}

int on_profile_modules(Object* self, Frame* frame, int what, Object* arg) noexcept {
  if ((what == kTraceCall || what == kTraceReturn) && !function_of(code_of(frame)).is_plain())
    return on_profile(self, frame, what, arg);
  return 0;
}

int on_profile_calls(Object* self, Frame* frame, int what, Object* arg) noexcept {
  if (what == kTraceCall || what == kTraceReturn) return on_profile(self, frame, what, arg);
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return 0;
  const bool is_stated = on_thread(*buffer).epoch == g_epoch;
  if (!is_stated && is_in_brief(*buffer)) return 0;
  const Callee callee = callee_of(arg);
  if (!callee.name) return 0;
  if (what == kTraceCCall) {
    if (!is_stated) [[unlikely]] {
      restate(*buffer, frame, false);
      if (is_in_brief(*buffer)) return 0;
    }
    begin_c_call(*buffer, callee, place_of(frame));
  } else if (is_stated) {
    end_c_call(*buffer, time);
  }
  return 0;
}

TraceFunction profile_function() noexcept {
  return g_level == PythonLevel::kModules ? on_profile_modules
         : g_level == PythonLevel::kCalls ? on_profile_calls
                                          : on_profile;
}

// Stands in for the program's new profile function until its first event. If a thread had a profile function before,
// Python tells the new one of the end of the very call that set it; without us it would not.
int swallow_first(Object* object, Frame* frame, int what, Object* arg) noexcept {
  ThreadState* state = api().current_thread();
  const TraceFunction theirs = known(state).pending;
  write_pointer(state, layout()->profile_function, reinterpret_cast<void*>(theirs));
  if (!theirs || what == kTraceCReturn || what == kTraceCException) return 0;
  return theirs(object, frame, what, arg);
}

// ---- who profiles a thread ------------------------------------------------------------------------------------------

void end_blind(KnownThread& k) noexcept {
  put_blind<BlindEnd>(k.blind_track, k.blind_by);
  k.blind_by = {};
}

void begin_blind(KnownThread& k, const char* by) noexcept {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return;
  k.blind_by = session::intern(by ? by : "another profiler");
  k.blind_track = is_own(k.state) ? buffer->track : k.track;
  put_blind<BlindBegin>(k.blind_track, k.blind_by);
}

// Takes a thread that nobody profiles, and notes one that somebody else does. `by`: who; nullptr: not known.
[[gnu::noinline]] void settle(ThreadState* state, const char* by) noexcept {
  void* function = read_pointer(state, layout()->profile_function);
  if (function == reinterpret_cast<void*>(g_ours) || function == reinterpret_cast<void*>(swallow_first)) return;
  const KeepError keep;
  KnownThread& k = known(state);
  if (function) {
    if (k.blind_by && by && k.blind_by != session::intern(by)) end_blind(k);
    if (!k.blind_by) begin_blind(k, by);
    return;
  }
  if (!set_profile_function(state, g_ours)) return;
  if (is_own(state)) {
    // It is not known what ran on this thread meanwhile: its stack is stated anew at the next event.
    if (t_buffer && on_thread(*t_buffer).epoch) on_thread(*t_buffer).epoch = kRestate;
  } else if (k.blind_by) {
    ++g_epoch;
  } else {
    k.track = {};
  }
  if (k.blind_by) end_blind(k);
}

}  // namespace

bool detail::g_uses_profile = false;

void start_profile() noexcept {
  check_layout();
  if (!layout() || !api().set_profile || !api().current_thread) {
    session::note_source("python", SourceState::kFailed,
                         "the interpreter's layout is not the one that this version knows");
    return;
  }
  static bool follows_forks = false;
  if (!std::exchange(follows_forks, true)) pthread_atfork(nullptr, nullptr, after_fork_in_child);
  g_function = profile_function();
  if (window::is_open()) switch_profile(true);
  session::note_source("python", SourceState::kOn, "PyEval_SetProfile on every thread");
}

void stop_profile() noexcept {
  switch_profile(false);
  g_function = nullptr;
  for (KnownThread& k : g_known_threads) k = {};
  g_known_threads_count = 0;
}

void switch_profile(bool on) noexcept {
  detail::g_uses_profile = on && g_function;
  g_ours = on ? g_function : nullptr;
  if (on) return cover_threads();
  if (!g_function) return;
  for_each_thread([](ThreadState* t) {
    if (read_pointer(t, layout()->profile_function) != reinterpret_cast<void*>(g_function)) return;
    set_profile_function(t, nullptr);
  });
}

void cover_threads() noexcept {
  if (!g_ours) return;
  for_each_thread([](ThreadState* t) { settle(t, nullptr); });
}

void detail::cover_this_thread() noexcept {
  if (!holds_gil()) return;
  ThreadState* self = api().current_thread();
  if (read_pointer(self, layout()->profile_function) != reinterpret_cast<void*>(g_ours)) settle(self, nullptr);
}

void* current_profile() noexcept {
  return g_ours ? read_pointer(api().current_thread(), layout()->profile_function) : nullptr;
}

bool is_profiled() noexcept { return g_ours && current_profile() == reinterpret_cast<void*>(g_ours); }

void profile_was_set(void* before, const char* by) noexcept {
  if (!g_ours) return;
  ThreadState* state = api().current_thread();
  settle(state, by);
  void* function = read_pointer(state, layout()->profile_function);
  const auto is = [](const void* f, TraceFunction which) { return f == reinterpret_cast<void*>(which); };
  if (!function || is(function, g_ours) || is(function, swallow_first)) return;
  // Only on this very thread: there its first event surely comes before anybody looks at the function.
  if (!is(before, g_ours) || !is_own(state)) return;
  known(state).pending = reinterpret_cast<TraceFunction>(function);
  write_pointer(state, layout()->profile_function, reinterpret_cast<void*>(swallow_first));
}

}  // namespace torchprof::python
