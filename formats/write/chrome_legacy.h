// The array of complete events that export_chrome_trace of the old autograd profiler wrote: operators and annotations,
// without Python and arguments.
//
// Source: export_chrome_trace in torch/autograd/profiler.py (to 1.8) and profiler_util.py (since), event_template in
// torch/csrc/autograd/profiler_legacy.cpp. Times are microseconds since the run began, here with three decimals. As
// there the process is "CPU functions"; with several processes its id or rank follows. GPU work is in a process "CUDA
// functions" with a thread for each device, and flows lead to it from the calls.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_chrome_legacy(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
