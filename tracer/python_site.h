// The line of Python that the calling thread is executing, found without the GIL: torch releases it before it
// allocates.
//
// A thread's own frames stand still while it is in C code, whoever holds the GIL: only the thread itself pushes and
// pops them, and a frame keeps its code object. What is read is the thread's state, its innermost frame, the frame's
// code and instruction, our mark on the code (python_code.h) and the code's table of lines, all of which no other
// thread changes. Offsets are those of release builds with a GIL, used only after check_frames() has compared them with
// the API.
#pragma once

#include <cstdint>

#include "tracer/ids.h"
#include "tracer/thread_buffer.h"

namespace torchprof::python {

// Once, with the GIL held, called from Python code and after prepare_objects(). Where the offsets do not hold there are
// no lines.
void check_frames() noexcept;

struct Site {
  FunctionId function;
  uint32_t line = 0;  // from 1; 0: not known, and then the function is none
};

// Any thread, with or without the GIL. No allocation, no lock. About 8 ns, and the time to read the table of lines for
// a place that this thread has not seen lately.
Site current_site(ThreadBuffer& buffer) noexcept;

}  // namespace torchprof::python
