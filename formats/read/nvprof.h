// Reads what nvprof -o wrote, as torch.autograd.profiler.load_nvprof does (parse_nvprof_trace, torch 1.13 to 2.14):
//
//   StringTable(_id_, value)
//   CUPTI_ACTIVITY_KIND_MARKER(id, name, timestamp): a range is a row with a name and one of the same id whose name is
//   0 CUPTI_ACTIVITY_KIND_RUNTIME(_id_, cbid, start, end, correlationId) CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(start,
//   end, name, correlationId) and, where there is one, deviceId
//
// A kernel belongs to the ranges whose time holds the call of its correlation, whatever their thread. An id of a range,
// or a call inside of one, that comes twice is an error, and so is a call inside of one that is no launch of a kernel.
// What differs from torch: a range is called by its name without what emit_nvtx adds to it, so that ranges of one
// operator are one row, and kernels of no range are shown too. Copies and sets are left out, as there.
#pragma once

#include "formats/io/sqlite_database.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error.
ReadEvents read_nvprof(const Database& database);

}  // namespace torchprof::formats
