// Formats of call paths (formats/analysis/call_tree.h): self CPU time by whole path, and time of what was launched on GPUs,
// whose path ends with its name. Each begins with the process and the thread.
//
// stacks      "python3 4711;4711_(pt_main_thread);train.py(3):_main;aten::mm 1234", microseconds, one line a path: for
//             flamegraph.pl and speedscope. As torch's export_stacks writes a line: a space, a semicolon, a tab and a
//             line break in a name become '_' (torch/autograd/profiler_util.py). What is left over of a microsecond is
//             carried to the next path, so that sums hold; a path of 0 is left out.
// stacks-cuda the same with the time on GPUs.
// speedscope  https://www.speedscope.app/file-format-schema.json: a sampled profile for each thread and, where it
//             launched any, one for its work on GPUs, nanoseconds. One sample a path, not in the order of time: Left
//             Heavy and Sandwich are the views for it.
// pprof       google/pprof proto/profile.proto, gzipped: time in nanoseconds and calls, time on GPUs and pieces of work
//             there, labels thread and process.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_stacks(const Trace& trace, Processes processes, Output& out);
void write_cuda_stacks(const Trace& trace, Processes processes, Output& out);
void write_speedscope(const Trace& trace, Processes processes, Output& out);
void write_pprof(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
