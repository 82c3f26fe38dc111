// The Python line that the calling thread is executing, found without the GIL (frames.h), which torch releases before
// it allocates.
#pragma once

#include <cstdint>

#include "tracer/spool/ids.h"
#include "tracer/thread_buffer.h"

namespace torchprof::python {

struct Site {
  FunctionId function;
  uint32_t line = 0;  // from 1; 0: not known, and then the function is none
};

// Any thread, with or without the GIL. No lock, and no allocation but one mapping at the thread's first call. About 8
// ns; for a place that this thread has not seen lately also the time to read the code's table of lines.
Site current_site(ThreadBuffer& buffer) noexcept;

}  // namespace torchprof::python
