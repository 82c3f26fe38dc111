// The calls of the CUDA runtime and driver that --gpu on records: those that a trace needs to be understood.
//
// What costs is CUPTI's callback at each call that it watches, not the record (H100, CUDA 13.0: torch makes 21 calls
// for each launch, as cudaGetDevice and cudaStreamIsCapturing; to record all of them adds 3.8 ms to a step of 450
// launches, the driver's 5.8 ms more). So CUPTI is told call by call which ones it is to watch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tracer/spool/record.h"

namespace torchprof::cupti {

enum class CallUse : uint8_t {
  kStartsWork,  // kernels, copies, sets, graphs: what ran on the device is shown with the call that started it
  kWaits,       // the program waits in it for a device
  kOrders,      // makes streams wait for each other
  kMemory,      // takes or gives back memory; many of these wait for the device as well
  kPrepares,    // contexts, modules, graphs: what the first use of something costs
};

struct RecordedCall {
  GpuApiKind api;
  uint16_t cbid;  // CUpti_runtime_api_trace_cbid or CUpti_driver_api_trace_cbid
  const char* name;
  CallUse use;
};

// A set of calls.
class CallSet {
 public:
  static constexpr uint32_t kMost = 2048;  // CUDA 13.0 has 523 of the runtime and 807 of the driver

  constexpr bool has(GpuApiKind api, uint32_t cbid) const noexcept {
    return cbid < kMost && (words_[row(api)][cbid / 64] >> cbid % 64 & 1) != 0;
  }
  constexpr void set(GpuApiKind api, uint32_t cbid, bool is_in) noexcept {
    if (cbid >= kMost) return;
    uint64_t& word = words_[row(api)][cbid / 64];
    const uint64_t bit = uint64_t{1} << cbid % 64;
    word = is_in ? word | bit : word & ~bit;
  }
  constexpr bool has_any(GpuApiKind api) const noexcept {
    for (const uint64_t word : words_[row(api)])
      if (word != 0) return true;
    return false;
  }
  constexpr void clear(GpuApiKind api) noexcept {
    for (uint64_t& word : words_[row(api)]) word = 0;
  }

 private:
  static constexpr size_t row(GpuApiKind api) noexcept { return api == GpuApiKind::kRuntime ? 0 : 1; }
  uint64_t words_[2][kMost / 64] = {};
};

// Those of the runtime come first.
std::span<const RecordedCall> recorded_calls() noexcept;
bool is_recorded_call(GpuApiKind api, uint32_t cbid) noexcept;

}  // namespace torchprof::cupti
