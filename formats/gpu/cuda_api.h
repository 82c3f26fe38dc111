// What the calls of CUDA are called, and which of them a trace shows.
//
// CUPTI tells a call by a number (cbid) that is never given again; the names are those of cupti_runtime_cbid.h and
// cupti_driver_cbid.h.
#pragma once

#include <cstdint>
#include <string>

#include "tracer/spool/record.h"

namespace torchprof::formats {

// "cudaLaunchKernel"; "CUDA runtime call 523" for one that is not known.
std::string cuda_api_name(GpuApiKind api, uint16_t cbid);

// Kineto leaves out some calls of the runtime and most of the driver. Those that work of a device belongs to
// (`has_activity`) are written nevertheless: otherwise that work would come from nowhere.
bool is_written(GpuApiKind api, uint16_t cbid, bool has_activity);

}  // namespace torchprof::formats
