// Python's threads: their names, and their stacks as another thread sees them.
//
// The names are threading.Thread.name, read when threading itself begins or renames a thread. No code of the program
// runs for it.
//
// The stacks are read by a thread that takes no part in Python (spool/python_stack.h) and recorded as ThreadStack: what
// a hang is made of, also where no thread has an event any more, and where one holds the GIL for ever.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// `frame` belongs to a function of FunctionKind::kThread: its first local is a thread. With the GIL held.
void name_thread(Frame* frame) noexcept;

// With the GIL held, after check_frames(). Compares what the tables say with what the API says of the calling thread,
// and tells the session; where they differ nothing is read. Once.
void prepare_stacks() noexcept;

// Records the stack of every thread but the calling one. With or without the GIL, by one thread at a time. Some 10 us
// for each frame. A thread that goes on meanwhile has the frames that stayed; one that has none is left out.
void state_all_stacks() noexcept;

}  // namespace torchprof::python
