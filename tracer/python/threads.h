// Python's threads: their names, and their stacks as another thread sees them.
//
// The names are threading.Thread.name, read when threading itself begins or renames a thread. No code of the program
// runs for it.
//
// The stacks are read by a thread that takes no part in Python (spool/python_stack.h) and recorded as ThreadStack: what
// a hang is made of, also where no thread has an event any more, and where one holds the GIL for ever.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/spool/python_stack.h"

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

// Whether the interpreter is ending, or cannot say so. Any thread.
bool is_ending() noexcept;

// The GIL: _gil_runtime_state of 3.11 to 3.15 (Include/internal/pycore_gil.h), with the thread that has had it last,
// and whether it has it (an int). With the GIL held: its address; 0: not known.
inline constexpr uint64_t kBytesOfGil = 208, kGilHolder = 8, kGilIsLocked = 16;
uint64_t find_gil() noexcept;

// What prepare_stacks() found to hold; `interpreter` 0: nothing.
InterpreterDef described_stacks() noexcept;

// The function whose mark the code object at this address carries; none: it has no mark. What was read is the code's
// only if the code is still there afterwards.
FunctionId marked_function(const ProcessMemory& memory, uint64_t code) noexcept;
// The function of the code object at this address, whose texts `says` has: the `marked` one, or one that is defined
// here. By our threads, each call with another `says`; takes a lock that no event waits for. None: nothing can be
// recorded.
FunctionId define_code(uint64_t code, const PythonCode& says, FunctionId marked) noexcept;

}  // namespace torchprof::python
