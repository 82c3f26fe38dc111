// Reads what `nsys export --type sqlite` wrote (NVIDIA Nsight Systems, "SQLite Schema Reference" of its user guide,
// 2020 to 2025). A table exists only if it has rows. At least one of these must exist:
//
//   NVTX_EVENTS(start, end, eventType, text, textId, globalTid)
//       eventType 59: pushed and popped; 60: started and ended by number
//   CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, globalPid, demangledName, shortName)
//   CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end, deviceId, correlationId, globalPid)
//       the launch of a whole CUDA graph, whose kernels have no rows (--cuda-graph-trace=graph, nsys's default)
//   CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET(start, end, deviceId, correlationId, globalPid, copyKind, srcKind, dstKind ...)
//
// Also used: CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId), StringIds(id, value), PROCESSES and
// TARGET_INFO_GPU. globalTid has the process in its bits 24 to 47 and the thread in the lowest 24.
//
// A range counts as an operator, by its name without what emit_nvtx adds. (Annotations count as operators, too: nsys
// does not tell them apart.)
#pragma once

#include "formats/io/sqlite_database.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause.
ReadEvents read_nsys(const Database& database);

}  // namespace torchprof::formats
