// Reports of torch's allocators -> records: every allocation and free of every device, on every thread.
//
// torch calls c10::reportMemoryUsageToProfiler through its PLT; a preloaded library that defines it is called instead
// (inject/interpose.cpp) and hands the call on, so that the program's own profile_memory sees what it would see. The
// CPU allocator reports only while c10::memoryProfilingEnabled() says so, and remembers the sizes of what it reported;
// it warns about blocks that it does not know. Where the answer changes with a window, inject/ keeps it from being
// asked about those. Any thread, under the allocator's locks: no allocation, no lock, nothing of torch or Python is
// called.
#pragma once

#include <atomic>
#include <cstdint>

namespace torchprof::torch {

struct Device {  // c10::Device
  int8_t type;
  int8_t index;
};
inline constexpr Device kCpu{0, -1};

// Once, when the session is armed.
void start_memory() noexcept;
namespace detail {
extern constinit std::atomic<bool> g_wants_memory;
}
// True while a window is open, unless memory is switched off.
inline bool wants_memory() noexcept { return detail::g_wants_memory.load(std::memory_order_relaxed); }

void switch_memory(bool on) noexcept;
// Ends it for good: the program exits.
void end_memory() noexcept;

// `bytes` > 0: allocated, < 0: freed. `allocated`, `reserved`: the device's totals as its allocator says.
void record_memory(void* address, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) noexcept;
// A block of the CPU's own allocator, while memory is wanted. Its total is asked for only where it is recorded.
void record_block(void* address, int64_t bytes, uint64_t (*total)() noexcept) noexcept;
void record_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) noexcept;

}  // namespace torchprof::torch
