// Runs of Python's garbage collector -> GcBegin and GcEnd.
//
// CPython calls what is in the list gc.callbacks, and has no other way to tell. A callable of ours in it would be seen:
// programs compare that list, and clear it. So the interpreter's own pointer to the list (GCState.callbacks) is turned
// to a list that nobody sees, whose one function records and then calls what is in the program's list, as the
// interpreter would have. The program's list, its references and gc.get_referrers() are what they are without us.
//
// The place of the pointer is a fact of each version (below in the .cpp); it is used only where it holds that very
// list. With the GIL held.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// Once. What could not be had is a line in the session's notes.
void start_gc() noexcept;
// A built-in module has been executed (3.11 and later execute "gc" anew for a second import): what its name callbacks
// stands for is put right.
void module_executed(Object* module) noexcept;

}  // namespace torchprof::python
