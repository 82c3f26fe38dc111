// What the program's own torch.profiler (profile_memory=True) would be told if we were not there.
//
// torch's CPU allocator notes blocks only while a profiler of the calling thread wants them, and says nothing of the
// end of a block that it has not noted. With us it notes all of them, from the start of the process. So that the
// program reads the same numbers as without us, what it would have noted is noted here as well, by the same rules
// (ProfiledCPUMemoryReporter, c10/core/CPUAllocator.cpp, 1.13 to 2.14). Other devices report whether a profiler asks or
// not: nothing changes for them.
//
// Any thread. Takes a lock, and memory for its table, only where the program's profiler is on and for mapped files.
#pragma once

#include <cstdint>

#include "tracer/torch/memory.h"

namespace torchprof::inject {

// Of a report of the CPU's: whether the program's profiler would get it. `wanted`: c10::memoryProfilingEnabled() as the
// real one says it. Changes `bytes` and `allocated` to what they would be.
bool program_would_see(const void* address, int64_t& bytes, uint64_t& allocated, uint64_t reserved,
                       bool wanted) noexcept;
// Blocks of the CPU that torch has reported in this window, whose sizes it knows therefore. `bytes`: as reported.
void note_reported(const void* address, int64_t bytes) noexcept;
bool was_reported(const void* address) noexcept;

// The CPU's total as it would be.
uint64_t program_total() noexcept;

}  // namespace torchprof::inject
