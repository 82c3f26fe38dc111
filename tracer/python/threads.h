// What Python calls its threads: threading.Thread.name, read where threading itself begins a thread or renames it. No
// code of the program runs for it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// `frame` is of a function of FunctionKind::kThread: its first local is a thread. With the GIL held.
void name_thread(Frame* frame) noexcept;

}  // namespace torchprof::python
