// The names of the CUDA API's functions, what they do, and which calls a trace shows.
//
// CUPTI identifies a function by a number (cbid) that is never used again. The names are from cupti_runtime_cbid.h and
// cupti_driver_cbid.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tracer/spool/record.h"

namespace torchprof::formats {

// "cudaLaunchKernel"; "CUDA runtime call 523" if it is not known.
std::string cuda_api_name(GpuApiKind api, uint16_t cbid);

// What a call does, by its name in a trace: names of the CUDA runtime and driver, 11.0 to 13.0, some of which come with
// a version (cudaMallocAsync_v11020), and of HIP. A cudaMemcpy that is not asynchronous waits.
enum class CallEffect : uint8_t {
  kOther,
  kLaunches,   // kernels, copies and sets
  kWaits,      // for the GPU
  kAllocates,  // gives or takes memory
};
CallEffect call_effect(std::string_view name);
std::string_view effect_text(CallEffect effect);  // "launch"

// Calls that take long the first time: they make CUDA ready, or load the code of kernels.
enum class FirstUse : uint8_t { kNone, kInitialises, kLoads };
FirstUse first_use(GpuApiKind api, uint16_t cbid);

// Whether a trace shows the call. Kineto leaves out some calls of the runtime and most of the driver. Calls that
// started work on a device (`has_activity`) are always written: otherwise that work would have no origin. So are those
// of a first use.
bool is_written(GpuApiKind api, uint16_t cbid, bool has_activity);

}  // namespace torchprof::formats
