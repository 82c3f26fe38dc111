// Reports of torch's allocators in a process that has not preloaded the library: the loader then resolves what libc10
// and those who are linked with it import to libc10's own functions, and the interposed ones (interpose.cpp) are never
// called. So these imports are pointed to them, through the tables by which the objects call.
//
// That libc10 calls its own functions through such a table was measured on the wheels of torch 2.0 to 2.15 and on
// Debian's 1.13.
//
// One thread at a time, with the GIL held.
#pragma once

namespace torchprof::inject {

// After an extension module has been loaded, and where torch is there already. Cheap where nothing was loaded. Does
// nothing where the library was preloaded.
void reach_allocators() noexcept;
// To be called when imports have been given back: the next reach_allocators() looks at all objects.
void forget_allocators() noexcept;

}  // namespace torchprof::inject
