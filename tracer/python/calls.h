// Python calls -> records, on every thread of every interpreter.
//
// 3.12 and later: sys.monitoring under a tool id that nobody holds (3, 4, then 5; 0 to 2 are reserved for debuggers,
// coverage and profilers, which may come later). C calls are instrumented at the level `calls` only. 3.10 and 3.11:
// PyEval_SetProfile on every thread state. A thread that the program itself profiles is left to it; when the program
// lets go of it, the next occasion (a new thread, an operator, sys.setprofile) takes the thread back, and its stack is
// stated anew.
//
// Before a thread's first event come the frames that are already on its stack, at most the innermost kMaxFrames.
#pragma once

#include <cstddef>

#include "tracer/config/config.h"

namespace torchprof::python {

inline constexpr size_t kMaxFrames = 128;

// Starts capture at `level`, with the GIL held; once in each turn of the session. The session's notes say what does not
// work.
void start_calls(PythonLevel level) noexcept;
// Gives back what start_calls() took of the first interpreter, with the GIL held and the window closed.
void stop_calls() noexcept;
// The same in a further interpreter that is starting (interpreters.h), with its GIL held. Modules and optimizers are
// not recognised there, and from 3.12 on, where it may run at the same time as others, C calls are not recorded.
void start_calls_here() noexcept;

// 3.10 and 3.11: threads have been added, or the program has let go of one: takes them. With the GIL held; cheap where
// nothing changed.
void cover_threads() noexcept;
// The same for the calling thread only, from an operator's callback: with or without the GIL. A few nanoseconds.
inline void cover_this_thread() noexcept;

// The calling thread changes to another stack (greenlets). leave_stack(): what is open ends. enter_stack(): states what
// is on the stack to which the thread has come. With the GIL held; a pending exception is kept.
void leave_stack() noexcept;
void enter_stack() noexcept;

// Registers Python as the window's interpreter (window.h), which switches calls on and off and asks which optimizer is
// in its step. It takes the GIL for it. Whenever a window opens, every thread states its stack anew. Once.
void follow_window() noexcept;

// Calls body() with the GIL held, and keeps a pending exception; on any thread. False: there is no interpreter that can
// be had any more.
bool with_gil(void (*body)() noexcept) noexcept;

namespace detail {
extern bool g_uses_profile;  // PyEval_SetProfile, not sys.monitoring
void cover_this_thread() noexcept;
}  // namespace detail
inline void cover_this_thread() noexcept {
  if (detail::g_uses_profile) detail::cover_this_thread();
}

}  // namespace torchprof::python
