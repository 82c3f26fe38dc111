// Timelines of the processes of a trace file, and what is made of them.
#pragma once

#include <vector>

#include "formats/read/events.h"

namespace torchprof::formats {

// `order`: the interned pids of `file`'s processes. Fills in their timelines and, of their statistics, the parts of
// steps, threads and collectives, and where there are none, or `step` names something else, the steps
// (formats/timeline/units.h). `read` has sorted slices.
void add_timelines(const ReadEvents& read, const std::vector<uint32_t>& order, const std::string& step,
                   TraceFile& file);

}  // namespace torchprof::formats
