// Runs of Python's garbage collector -> GcBegin and GcEnd.
//
// CPython calls what is in the list gc.callbacks; that is the only way to be told. A callable of ours in it would be
// noticed: programs compare that list, and clear it. So we point the interpreter's own pointer to the list
// (GCState.callbacks) at a list that nobody sees. Its only function records, and then calls what is in the program's
// list, as the interpreter would have done. The program's list, its references and gc.get_referrers() are what they are
// without us.
//
// The place of the pointer differs between versions (offsets.h); it is used only where it points to that very list.
// From 3.13 on it is looked for in the whole state of the interpreter. With the GIL held.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// Once. If it does not work, the session's notes say so.
void start_gc() noexcept;
// The interpreter has its own list again, unless somebody else has put one there since.
void stop_gc() noexcept;
// A built-in module has been executed. (3.11 and later execute "gc" again for a second import, which would then show
// our list as gc.callbacks: the program's is put back.)
void module_executed(Object* module) noexcept;

}  // namespace torchprof::python
