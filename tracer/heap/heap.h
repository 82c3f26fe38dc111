// What Python's own allocator gives out -> samples, as Memory records of the device kPythonMemory (--memory python).
//
// Hooks of PyMem_SetAllocator around the domains MEM and OBJECT, which hold lists, dictionaries, text, objects and
// all that CPython and most extension modules allocate. What comes from malloc itself is not seen: numpy's data, C++.
//
// Which blocks: those from kSample bytes on, each as large as it is; of the smaller ones each that holds one of the
// points which lie kSample bytes apart, on average and at random, in the sequence of all that is allocated. Such a
// block stands for kSample bytes for each point in it, so that sums of bytes are right on average, whatever the sizes
// are. A block that is resized is freed and allocated anew.
//
// The addresses of sampled blocks that live are in a table of fixed size, which every free looks at. Blocks of an
// earlier window, and a forked child's from its parent, are forgotten.
//
// Threads: with the GIL held, of any interpreter; interpreters with a GIL of their own may call at the same time. No
// lock, no allocation; nothing of Python is called but the allocators that were there before.
#pragma once

#include <cstdint>

namespace torchprof::heap {

inline constexpr int64_t kSample = int64_t{32} << 10;  // bytes

// Once in each turn, with the GIL held; does nothing unless it is wanted. The session's notes say why if it does not
// work.
void start() noexcept;
// The allocators are what they were, unless somebody else (tracemalloc) has put hooks around ours: ours stay, and
// only hand on.
void stop() noexcept;

}  // namespace torchprof::heap
