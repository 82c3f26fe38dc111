// Memory over time by category (formats/memory/categories.h), as torch.profiler's export_memory_timeline writes it.
//
//   memory-timeline       [times, sizes]: times in microseconds since 1970; for each time a 0, which torch's plots
//                         need, and the bytes of all categories in torch's order
//   memory-timeline-raw   [[time, action, bytes, category], ...]: times in nanoseconds since 1970, or -1 for what was
//                         there before; action 1 was there before, 2 allocated, 4 freed (then bytes are negative). HTA
//                         reads this one
//   memory-timeline-html  a page with a picture for each process and device, without scripts or network
//
// The first two are of one device, as in torch: the one with the most memory, or the CPU if there is no other. With
// several processes it is an object with one such value for each process ("python3 4711, rank 1").
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_memory_timeline(const Trace& trace, Processes processes, Output& out);
void write_memory_timeline_raw(const Trace& trace, Processes processes, Output& out);
void write_memory_timeline_html(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
