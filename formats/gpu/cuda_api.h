// The names of the CUDA API's functions, and which calls a trace shows.
//
// CUPTI identifies a function by a number (cbid) that is never used again. The names are from cupti_runtime_cbid.h and
// cupti_driver_cbid.h.
#pragma once

#include <cstdint>
#include <string>

#include "tracer/spool/record.h"

namespace torchprof::formats {

// "cudaLaunchKernel"; "CUDA runtime call 523" if it is not known.
std::string cuda_api_name(GpuApiKind api, uint16_t cbid);

// Calls that take long the first time: they make CUDA ready, or load the code of kernels.
enum class FirstUse : uint8_t { kNone, kInitialises, kLoads };
FirstUse first_use(GpuApiKind api, uint16_t cbid);

// Whether a trace shows the call. Kineto leaves out some calls of the runtime and most of the driver. Calls that
// started work on a device (`has_activity`) are always written: otherwise that work would have no origin. So are those
// of a first use.
bool is_written(GpuApiKind api, uint16_t cbid, bool has_activity);

}  // namespace torchprof::formats
