// 3.10 and 3.11: PyEval_SetProfile on every thread state of every interpreter.
//
// A thread has one profile function, and the program's own comes first: while sys.setprofile, cProfile or
// torch.profiler has it, we see nothing on that thread but the fact itself (BlindBegin, BlindEnd). We learn that a
// thread was taken or let go from sys.setprofile and cProfile, from the PyEval_SetProfile that libraries import
// (inject/), and otherwise at the next operator on that thread or the next thread that is started.
//
// All functions need the GIL, unless it says otherwise.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

void start_profile() noexcept;
void stop_profile() noexcept;
// Takes every thread that nobody else profiles, or lets go of all that are ours (window.h).
void switch_profile(bool on) noexcept;
// Whether calls of the calling thread are seen in this way.
bool is_profiled() noexcept;

// The calling thread's profile function; nullptr: none, or this is not how we see calls.
void* current_profile() noexcept;
// `by` (a literal, or any name) may have set or cleared the profile function of the current thread state, which was
// `before`. If it did not, this does nothing.
void profile_was_set(void* before, const char* by) noexcept;

}  // namespace torchprof::python
