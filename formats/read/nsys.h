// Reads what `nsys export --type sqlite` wrote (NVIDIA Nsight Systems, "SQLite Schema Reference" of its user guide,
// 2020 to 2025). Tables are made only where there is something for them; of these at least one has to be there:
//
//   NVTX_EVENTS(start, end, eventType, text, textId, globalTid): 59 pushed and popped, 60 started and ended by number
//   CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, globalPid, demangledName, shortName)
//   CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET (start, end, deviceId, correlationId, globalPid, copyKind, srcKind, dstKind
//   ...)
//
// and beside them CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId), StringIds(id, value), PROCESSES
// and TARGET_INFO_GPU. globalTid has the process in its bits 24 to 47 and the thread in the lowest 24.
//
// A range is an operator (an annotation would be one too: nsys does not tell them apart), by its name without what
// emit_nvtx adds; work belongs to the innermost range of its thread that holds the call of its correlation.
#pragma once

#include "formats/io/sqlite_database.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error.
ReadEvents read_nsys(const Database& database);

}  // namespace torchprof::formats
