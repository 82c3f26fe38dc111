// Memory over time by category (formats/memory/categories.h), as torch.profiler's export_memory_timeline writes it.
//
//   memory-timeline       [times, sizes]: times in microseconds since 1970; of each time the bytes of all categories in
//                         torch's order, behind a 0 for its plots
//   memory-timeline-raw   [[time, action, bytes, category], ...]: 1 there before, 2 allocated, 4 freed. What HTA reads.
//   memory-timeline-html  a page with a picture of each process and device, without scripts or network
//
// The first two are of one device as torch's are: of a process's devices the one with the most memory, the CPU if it
// has no other. Of several processes: an object of the same by process ("python3 4711, rank 1").
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_memory_timeline(const Trace& trace, Processes processes, Output& out);
void write_memory_timeline_raw(const Trace& trace, Processes processes, Output& out);
void write_memory_timeline_html(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
