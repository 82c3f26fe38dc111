// The array of complete events that the old autograd profiler's export_chrome_trace wrote: operators and annotations,
// no Python, no arguments.
//
// Source: export_chrome_trace in torch/autograd/profiler.py (to 1.8) and profiler_util.py (since), event_template in
// torch/csrc/autograd/profiler_legacy.cpp. Times are microseconds since the run began, here with three decimals. The
// process is "CPU functions", as there; with several processes their number or rank follows. Work of GPUs is in a
// process "CUDA functions", a thread for each device, with flows from the calls.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_chrome_legacy(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
