// Python calls -> records, on every thread of every interpreter.
//
// 3.12 and later: sys.monitoring under a tool id that nobody holds (3, 4, then 5: 0 to 2 are spoken for by debuggers,
// coverage and profilers that may come later). C calls are instrumented at the level `calls` only. 3.10 and 3.11:
// PyEval_SetProfile on every thread state. A thread that the program itself profiles is left to it; when it lets go,
// the next occasion (a new thread, an operator, sys.setprofile) takes the thread back and restates its stack.
//
// A thread's first event states the frames that are already on its stack, at most kMaxFrames of the innermost.
#pragma once

#include <cstddef>

#include "tracer/config/config.h"

namespace torchprof::python {

inline constexpr size_t kMaxFrames = 128;

// Starts capture at `level`, with the GIL held. Once. What could not be had is a line in the session's notes.
void start_calls(PythonLevel level) noexcept;
// The same in an interpreter that is starting besides the first (interpreters.h), with its GIL held. Modules and
// optimizers are not told apart there, and from 3.12 on, where it may run at the same time as others, C calls are not
// recorded.
void start_calls_here() noexcept;

// 3.10 and 3.11: thread states have been added, or one was let go. With the GIL held; cheap where nothing changed.
void cover_threads() noexcept;
// The same for the calling thread alone, from an operator's callback: with or without the GIL. A few nanoseconds.
inline void cover_this_thread() noexcept;

// The calling thread leaves its stack for another one, and has come back to it (greenlets): what is open ends with
// leave_stack(), and enter_stack() states what the stack holds. With the GIL held; a pending exception is kept.
void leave_stack() noexcept;
void enter_stack() noexcept;

namespace detail {
extern bool g_uses_profile;  // PyEval_SetProfile, not sys.monitoring
void cover_this_thread() noexcept;
}  // namespace detail
inline void cover_this_thread() noexcept {
  if (detail::g_uses_profile) detail::cover_this_thread();
}

}  // namespace torchprof::python
