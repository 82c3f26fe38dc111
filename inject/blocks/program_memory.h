// What the program's own torch.profiler (profile_memory=True) would be told without us.
//
// torch's CPU allocator remembers blocks only while a profiler of the calling thread wants them, and does not report
// the end of a block that it does not remember. With us it remembers all of them, from the start of the process. To let
// the program read the same numbers as without us, we keep what torch would have remembered, by the same rules
// (ProfiledCPUMemoryReporter, c10/core/CPUAllocator.cpp, 1.13 to 2.14). Other devices report whether a profiler is on
// or not: nothing changes for them.
//
// Any thread. Takes a lock, and memory for its tables, only while the program's profiler is on, and for mapped files.
#pragma once

#include <cstdint>

#include "tracer/torch/memory.h"

namespace torchprof::inject {

// Whether the program's profiler would get this report of the CPU allocator without us; changes `bytes` and `allocated`
// to what they would be. `wanted`: what the real c10::memoryProfilingEnabled() returns.
bool program_would_see(const void* address, int64_t& bytes, uint64_t& allocated, uint64_t reserved,
                       bool wanted) noexcept;
// The blocks of the CPU that torch has reported in this window: it knows their sizes. `bytes`: as reported.
void note_reported(const void* address, int64_t bytes) noexcept;
bool was_reported(const void* address) noexcept;

// The CPU's total as it would be without us.
uint64_t program_total() noexcept;

}  // namespace torchprof::inject
