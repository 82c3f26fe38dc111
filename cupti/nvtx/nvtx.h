// The program's own NVTX calls -> records: ranges, marks, with their domain, category, colour and payload.
//
//  * Push and pop nest for each thread and domain. What a push and a pop return is the depth, as NVTX says; outside of
//    a window kNoTracking.
//  * A range that is started and ended by its number may end on any thread, as an asynchronous operator.
//  * A pop or an end whose begin lies outside of this window leaves nothing.
//  * A range may open a window (range=NAME).
//  * A name without end (more than kRoom bytes of registered strings) is left out: such ranges are "unnamed".
//
// Threads: any. Hot: no lock, no allocation; texts are interned as annotations' names are. A thread may have
// OpenRanges::kMost open by push (nvtx_ranges.h); what is deeper is not recorded. Nor is what a thread pushes for the
// first time when another one has entered seccomp for it (tracer/process/seal.h).
#pragma once

#include "cupti/nvtx/nvtx_abi.h"

namespace torchprof::nvtx {

// Gives our functions to one client (nvtx_abi.h). False: we do not know its interface.
bool attach(GetExportTable get) noexcept;

}  // namespace torchprof::nvtx
