// The interposed symbols, each with the reason it is there. exports.map lists the same names.
//
//   c10::reportMemoryUsageToProfiler         torch's allocators report every block, on every thread. The totals were
//   c10::reportOutOfMemoryToProfiler         int64 up to 1.13 and are size_t since: two manglings each
//   c10::ProfiledCPUMemoryReporter::New,     the CPU allocator has a new block, frees one, or has no room
//   ::Delete, ::OutOfMemory                  Recorded here; torch then does what it does without us, so that the
//                                            program's own profile_memory reads the same numbers as without us
//   c10::memoryProfilingEnabled              the CPU allocator asks it before it reports anything. Answered only for a
//                                            libc10 that does not call New through its PLT: its reports are all we have
//
// Source: c10/core/Allocator.{h,cpp} and c10/core/CPUAllocator.{h,cpp} of torch 1.13, 2.6 and 2.14; that libc10 calls
// them through its own PLT was measured on all three. The real functions are looked up in libc10 itself: it is loaded
// with RTLD_LOCAL, so RTLD_NEXT does not find them.
#include "inject/interpose.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "inject/blocks/cpu_blocks.h"
#include "inject/blocks/program_memory.h"
#include "tracer/process/diag.h"
#include "tracer/torch/memory.h"
#include "tracer/window.h"

namespace torchprof::inject {
namespace {

using torch::Device;

using Enabled = bool (*)();
using Table = void* (*)();
using New = void (*)(void* self, void* address, size_t bytes);
using Delete = void (*)(void* self, void* address);
using OutOfMemory = void (*)(void* self, size_t bytes);
using Report = void (*)(void*, int64_t, uint64_t, uint64_t, Device);
using ReportOutOfMemory = void (*)(int64_t, uint64_t, uint64_t, Device);

struct RealBlocks {
  Enabled enabled = nullptr;
  Table table = nullptr;
  New add = nullptr;
  Delete remove = nullptr;
  OutOfMemory fail = nullptr;
  Report report = nullptr;
  ReportOutOfMemory out_of_memory = nullptr;
};

int find_c10(dl_phdr_info* info, size_t, void* out) noexcept {
  const char* path = info->dlpi_name;
  const char* slash = path ? strrchr(path, '/') : nullptr;
  if (!slash || strncmp(slash + 1, "libc10.so", 9) != 0) return 0;
  *static_cast<const char**>(out) = path;
  return 1;
}

// Looked up at the first call, which comes from libc10 itself, so libc10 is there. Two threads may both look, and find
// the same.
const RealBlocks& real() noexcept {
  static constinit RealBlocks found;
  static constinit std::atomic<bool> is_found{false};
  if (is_found.load(std::memory_order_acquire)) [[likely]]  // pairs with the release below: `found` is written
    return found;
  const KeepErrno keep;
  const char* path = nullptr;
  dl_iterate_phdr(find_c10, &path);
  void* library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : RTLD_NEXT;
  const auto either = [library](const char* name, const char* other) {
    void* symbol = dlsym(library, name);
    return symbol ? symbol : dlsym(library, other);
  };
  RealBlocks r;
  r.enabled = reinterpret_cast<Enabled>(dlsym(library, "_ZN3c1022memoryProfilingEnabledEv"));
  r.table = reinterpret_cast<Table>(dlsym(library, "_ZN3c1025profiledCPUMemoryReporterEv"));
  r.add = reinterpret_cast<New>(dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"));
  r.fail = reinterpret_cast<OutOfMemory>(dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm"));
  r.remove = reinterpret_cast<Delete>(dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"));
  r.report = reinterpret_cast<Report>(either("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
                                             "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"));
  r.out_of_memory = reinterpret_cast<ReportOutOfMemory>(either("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
                                                               "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"));
  found = r;
  is_found.store(true, std::memory_order_release);  // pairs with the acquire above
  return found;
}

// The CPU allocator's table of blocks is a static variable, made when the table is first used. Exit handlers that the
// program registered before that run after the table has been destroyed: from then on the allocator must not use it
// because of us. Relaxed: the flag only decides which thread registers our exit handler.
constinit std::atomic<bool> g_ends_with_the_table{false};

[[gnu::noinline, gnu::cold]] void end_with_the_table() noexcept {
  if (g_ends_with_the_table.exchange(true, std::memory_order_relaxed)) return;
  const KeepErrno keep;
  if (const Table table = real().table) table();
  atexit([] { torch::end_memory(); });
}

// This thread is freeing a block that torch has not reported to us, and must not look for in its table.
constinit thread_local bool t_hides_block __attribute__((tls_model("initial-exec"))) = false;

// The CPU allocator calls New through its PLT. It does before it calls anything else of these. Relaxed: it is set on
// each thread that could need it.
constinit std::atomic<bool> g_sees_allocator{false};
// The block of which torch's own New or Delete tells the program's profiler on this thread: it is recorded already. By
// its address, since torch's function may leave by an exception.
constinit thread_local const void* t_recorded __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local bool t_is_recorded_failure __attribute__((tls_model("initial-exec"))) = false;

void report(void* address, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) {
  const RealBlocks& r = real();
  const bool is_recorded = device.type == 0 && address && address == t_recorded;
  if (!is_recorded) torch::record_memory(address, bytes, allocated, reserved, device);
  if (g_sees_allocator.load(std::memory_order_relaxed)) {
    if (r.report) r.report(address, bytes, allocated, reserved, device);
    return;
  }
  if (!window::is_whole_run() && device.type == 0 && torch::wants_memory()) note_reported(address, bytes);
  if (!r.report) return;
  // Where the CPU allocator does not report because of us, its reports are what they are without us.
  if (device.type == 0 && torch::wants_memory() &&
      !program_would_see(address, bytes, allocated, reserved, r.enabled && r.enabled()))
    return;
  r.report(address, bytes, allocated, reserved, device);
}

void report_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) {
  const bool is_recorded = device.type == 0 && t_is_recorded_failure;
  if (!is_recorded) torch::record_out_of_memory(bytes, allocated, reserved, device);
  const RealBlocks& r = real();
  if (!r.out_of_memory) return;
  if (!g_sees_allocator.load(std::memory_order_relaxed) && device.type == 0 && torch::wants_memory()) {
    if (!r.enabled || !r.enabled()) return;
    allocated = program_total();
  }
  r.out_of_memory(bytes, allocated, reserved, device);
}

}  // namespace
}  // namespace torchprof::inject

using torchprof::inject::Device;

TORCHPROF_EXPORT bool _ZN3c1022memoryProfilingEnabledEv() {
  if (torchprof::torch::wants_memory() && !torchprof::inject::t_hides_block &&
      !torchprof::inject::g_sees_allocator.load(std::memory_order_relaxed)) {
    if (!torchprof::inject::g_ends_with_the_table.load(std::memory_order_relaxed)) [[unlikely]]
      torchprof::inject::end_with_the_table();
    return true;
  }
  const auto theirs = torchprof::inject::real().enabled;
  return theirs && theirs();
}
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void* self, void* address, size_t bytes) {
  using namespace torchprof;
  if (!inject::g_sees_allocator.load(std::memory_order_relaxed)) [[unlikely]]
    inject::g_sees_allocator.store(true, std::memory_order_relaxed);
  const bool wants = torch::wants_memory();
  const auto size = static_cast<int64_t>(bytes);
  if (wants && size > 0) {
    inject::add_block(address, size, window::number());
    torch::record_block(address, size, inject::total_of_blocks);
  }
  const auto theirs = inject::real().add;
  if (!theirs) return;
  inject::t_recorded = wants ? address : nullptr;
  theirs(self, address, bytes);
  inject::t_recorded = nullptr;
}
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm(void* self, size_t bytes) {
  using namespace torchprof;
  const bool wants = torch::wants_memory();
  const auto size = static_cast<int64_t>(bytes);
  if (wants && size > 0) torch::record_out_of_memory(size, inject::total_of_blocks(), 0, torch::kCpu);
  const auto theirs = inject::real().fail;
  if (!theirs) return;
  inject::t_is_recorded_failure = wants;
  theirs(self, bytes);
  inject::t_is_recorded_failure = false;
}
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void* self, void* address) {
  using namespace torchprof;
  const auto theirs = inject::real().remove;
  if (inject::g_sees_allocator.load(std::memory_order_relaxed)) {
    const bool wants = torch::wants_memory();
    if (const int64_t freed = wants ? inject::free_block(address, window::number()) : 0; freed != 0)
      torch::record_block(address, -freed, inject::total_of_blocks);
    if (!theirs) return;
    inject::t_recorded = wants ? address : nullptr;
    theirs(self, address);
    inject::t_recorded = nullptr;
    return;
  }
  if (!theirs) return;
  if (!torch::wants_memory() || window::is_whole_run()) return theirs(self, address);
  inject::t_hides_block = !inject::was_reported(address);
  theirs(self, address);
  inject::t_hides_block = false;
}
TORCHPROF_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void* p, int64_t n, int64_t a, int64_t r,
                                                                            Device d) {
  torchprof::inject::report(p, n, static_cast<uint64_t>(a), static_cast<uint64_t>(r), d);
}
TORCHPROF_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void* p, int64_t n, uint64_t a, uint64_t r,
                                                                            Device d) {
  torchprof::inject::report(p, n, a, r, d);
}
TORCHPROF_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(int64_t n, int64_t a, int64_t r, Device d) {
  torchprof::inject::report_out_of_memory(n, static_cast<uint64_t>(a), static_cast<uint64_t>(r), d);
}
TORCHPROF_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t n, uint64_t a, uint64_t r, Device d) {
  torchprof::inject::report_out_of_memory(n, a, r, d);
}
