// What says why a process hangs, or what it waited for when it died, beside the open calls of its threads
// (run_info.h): work that a GPU has not finished, and collectives where not all ranks have arrived. In the form of
// run.json; `torchprof where` prints it.
#pragma once

#include "formats/trace/trace.h"
#include "launcher/run_dir/run_info.h"

namespace torchprof::launcher {

// Adds "stuck_gpu" to a process, if there is any: [device, stream, kernel, seconds, behind (pieces of work that waited
// behind it, at least), collective, tid (of who launched it), spans (what was open there, outermost first)].
void add_stuck_gpu(Info& process_info, const formats::Process& process, bool is_running);
// Adds "collectives" to a run, if some ranks have not arrived where others are: lines of text.
void add_arrivals(Info& info, const formats::Trace& trace, bool is_running);

}  // namespace torchprof::launcher
