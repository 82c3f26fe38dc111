// The names that Python gives its threads: threading.Thread.name, read when threading itself begins or renames a
// thread. No code of the program runs for it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// `frame` belongs to a function of FunctionKind::kThread: its first local is a thread. With the GIL held.
void name_thread(Frame* frame) noexcept;

}  // namespace torchprof::python
