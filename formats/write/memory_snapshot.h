// What was alive at the peak of each device, and how memory grew to it, as a pickle for torch's tools for memory
// snapshots (python3 -m torch.cuda._memory_viz, pytorch.org/memory_viz). It is what torch.cuda.memory._snapshot() would
// give at the moment that `report -t memory` calls the peak.
//
//   segments       the blocks that were alive then. The segments of torch's allocator are not recorded, so each block
//                  is a segment
//   device_traces  for each device, from the begin of the recording to its peak: segment_alloc, alloc, free_requested,
//                  free_completed and segment_free with time, address and bytes
//   frames         innermost first: native frames (run --native on), then the open operators, Python functions and
//                  modules; the innermost function with its line if that was recorded
//   torchprof      [{"device", "name", "process", "peak_bytes", "peak_us", "unknown_bytes"}]: which device is which.
//                  `unknown_bytes` of the peak were allocated before the recording began, and are no blocks here
//
// torch's tools show a number for each device: here first the devices of the first process, CUDA first and the CPU
// last, then those of the next process.
//
// Memory: the live blocks, and the stacks that have come so far, at most kMostStacks.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_memory_snapshot(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
