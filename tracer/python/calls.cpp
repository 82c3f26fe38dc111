#include "tracer/python/calls.h"

#include <atomic>
#include <cstdio>

#include "tracer/process/diag.h"
#include "tracer/python/events.h"
#include "tracer/python/frames.h"
#include "tracer/python/gc.h"
#include "tracer/python/imports.h"
#include "tracer/python/monitoring.h"
#include "tracer/python/offsets.h"
#include "tracer/python/profile.h"
#include "tracer/python/site.h"
#include "tracer/python/threads.h"
#include "tracer/window.h"

namespace torchprof::python {
namespace {

// What of the interpreter is not as its offsets say; nullptr: all is.
const char* check_interpreter() noexcept {
  const char* const wrong = prepare_stacks();
  // check_frames() reads by the same offsets, without a net: of a version that nobody has tried they hold first.
  if (wrong && !is_known_version()) return wrong;
  const char* const wrong_frames = check_frames();
  return wrong ? wrong : wrong_frames;
}

// False: it is refused.
bool accept_interpreter() noexcept {
  const char* const wrong = check_interpreter();
  if (is_known_version()) return true;
  char text[session::kNoteSize];
  if (wrong) {
    snprintf(text, sizeof(text), "Python 3.%d.%d is newer than this version knows (3.%d to 3.%d), and %s", api().minor,
             api().micro, kOldestMinor, kNewestMinor, wrong);
    session::note_source("python", SourceState::kFailed, text);
    tell_once_a_run(Cause::kPython, About::kLoss, "Python calls are not recorded: %s", text);
    return false;
  }
  tell_once_a_run(
      Cause::kNewPython, About::kNotice,
      "Python 3.%d.%d is newer than this version knows (3.%d to 3.%d): it is used, since all checks of it hold",
      api().minor, api().micro, kOldestMinor, kNewestMinor);
  return true;
}

}  // namespace

void start_calls(PythonLevel level) noexcept {
  if (level == PythonLevel::kOff) {
    session::note_source("python", SourceState::kOff, "switched off (--python off)");
    if (const uint32_t wanted = session::config().sample; wanted != 0 && wanted != kSampleOfWindow)
      session::note_source("samples", SourceState::kOff, "switched off with all of Python (--python off)");
    return;
  }
  const KeepError keep;
  if (!prepare_objects()) {
    session::note_source("python", SourceState::kFailed, "the interpreter has no room for our mark on code objects");
    return;
  }
  if (!accept_interpreter()) return window::announce(window::Found::kInterpreter);
  g_level = level;
  start_imports();
  start_lines();
  ++g_epoch;
  if (level != PythonLevel::kModules) start_gc();
  if (api().minor >= 12)
    start_monitoring();
  else
    start_profile();
  api().error_clear();
  window::announce(window::Found::kInterpreter);
}

void stop_calls() noexcept {
  if (g_level == PythonLevel::kOff) return;
  const KeepError keep;
  stop_gc();
  stop_monitoring();
  stop_profile();
  g_level = PythonLevel::kOff;
  api().error_clear();
}

void start_calls_here() noexcept {
  if (g_level == PythonLevel::kOff || g_level == PythonLevel::kModules) return;
  const KeepError keep;
  static std::atomic<bool> has_failed{false};
  if (!prepare_objects_here())
    has_failed.store(true, std::memory_order_relaxed);
  else if (api().minor < 12)
    cover_threads();
  else if (!start_monitoring_here())
    has_failed.store(true, std::memory_order_relaxed);
  if (has_failed.load(std::memory_order_relaxed))
    session::note_source("subinterpreters", SourceState::kFailed,
                         "Python calls are not recorded in one or more of them: another tool was there first");
  else
    session::note_source("subinterpreters", SourceState::kOn,
                         api().minor >= 12 ? "calls of Python functions; no modules, no C calls" : "calls; no modules");
  api().error_clear();
}

void leave_stack() noexcept {
  ThreadBuffer* buffer = window::is_open() ? session::current_buffer() : nullptr;
  if (!buffer || on_thread(*buffer).epoch == 0) return;
  // The next stack begins with another PythonSync: frames of that one are never taken for frames of this one.
  if (buffer->append<PythonSync>(session::now())) buffer->commit();
  on_thread(*buffer).epoch = kRestate;
}

void enter_stack() noexcept {
  leave_stack();
  ThreadBuffer* buffer = window::is_open() ? session::current_buffer() : nullptr;
  if (!buffer || on_thread(*buffer).epoch == 0 || !(is_monitoring() || is_profiled())) return;
  const KeepError keep;
  state_stack(*buffer, api().current_frame());
}

}  // namespace torchprof::python
