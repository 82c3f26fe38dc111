// Reads what `nvprof -o` wrote, as torch.autograd.profiler.load_nvprof does (parse_nvprof_trace, torch 1.13 to 2.14):
//
//   StringTable(_id_, value)
//   CUPTI_ACTIVITY_KIND_MARKER(id, name, timestamp)
//       a range is a row with a name, and a row with the same id and name 0
//   CUPTI_ACTIVITY_KIND_RUNTIME(_id_, cbid, start, end, correlationId)
//   CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(start, end, name, correlationId), and deviceId if it has one
//
// A kernel belongs to the ranges whose time holds the call with its correlation, on any thread. These are errors: an id
// of a range that comes twice, and in a range a call that comes twice or has a kernel but does not launch one.
// Unlike in torch, a range has its name without what emit_nvtx adds, so that the ranges of one operator are one row,
// and kernels outside of ranges are shown, too. As in torch, copies and sets are left out.
#pragma once

#include "formats/io/sqlite_database.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause.
ReadEvents read_nvprof(const Database& database);

}  // namespace torchprof::formats
