// Formats of call paths (formats/analysis/call_tree.h): self CPU time by whole path, and GPU time by the path that
// launched the work, which ends with the work's name. Each path begins with the process and the thread.
//
//   stacks       "python3 4711;4711_(pt_main_thread);train.py(3):_main;aten::mm 1234": microseconds, one path a line,
//                for flamegraph.pl and speedscope. Lines are those of torch's export_stacks: space, semicolon, tab and
//                line break in a name become '_' (torch/autograd/profiler_util.py). What is left of a microsecond is
//                carried to the next path, so that sums hold; a path of 0 is left out.
//   stacks-cuda  the same with the time on GPUs.
//   speedscope   https://www.speedscope.app/file-format-schema.json: for each thread a sampled profile in nanoseconds
//                and, if it launched any, one of its work on GPUs. There is one sample for each path, and they are not
//                in the order of time: use the views Left Heavy and Sandwich.
//   pprof        google/pprof proto/profile.proto, gzipped: CPU time in nanoseconds and calls, GPU time and pieces of
//                work, with the labels thread and process.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_stacks(const Trace& trace, Processes processes, Output& out);
void write_cuda_stacks(const Trace& trace, Processes processes, Output& out);
void write_speedscope(const Trace& trace, Processes processes, Output& out);
void write_pprof(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
