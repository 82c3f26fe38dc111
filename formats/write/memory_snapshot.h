// What lived at the peak of each device, and how it came to that, as a pickle that torch's tools for memory snapshots
// read (python3 -m torch.cuda._memory_viz, pytorch.org/memory_viz): what torch.cuda.memory._snapshot() gives, at the
// moment that `report -t memory` calls the peak.
//
//   segments       the blocks that lived then. Segments of torch's own allocator are not recorded: each block is one
//   device_traces  of each device, from the begin of the recording to its peak: segment_alloc, alloc, free_requested,
//                  free_completed and segment_free with time, address and bytes
//   frames         innermost first: native frames (run --native on), then operators, functions of Python and modules
//                  that were open, the innermost function with its line if that was recorded
//   torchprof      [{"device", "name", "process", "peak_bytes", "peak_us", "unknown_bytes"}]: which device is which.
//                  `unknown_bytes` of the peak were there before the recording began, and are no blocks here
//
// A device has the number that torch's tools show: all of one process, those of CUDA first and the CPU last, then those
// of the next.
//
// Memory: the live blocks, and stacks that have come so far, at most kMostStacks.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_memory_snapshot(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
