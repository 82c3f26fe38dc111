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

// With the GIL held. Compares what the offsets say with what the API says of the calling thread, in a way that no wrong
// offset can fault, and tells the session; where they differ nothing is read. nullptr: they agree, or it is 3.10;
// otherwise what does not, in words that follow "Python 3.15.2: ". Once.
const char* prepare_stacks() noexcept;

// Records the stack of every thread but the calling one. With or without the GIL, by one thread at a time. Some 10 us
// for each frame. A thread that goes on meanwhile has the frames that stayed; one that has none is left out.
void state_all_stacks() noexcept;

}  // namespace torchprof::python
