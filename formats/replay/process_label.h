// What people tell the processes of a run apart by.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// "python3 4711", of one with a role (trace/roles.h) "python3 4711, rank 1". As the program had it: not checked to be UTF-8.
std::string process_label(const Process& process);

// Basename of argv[0]; "unknown" if there is none.
std::string_view program_name(const Process& process);

// In one trace each process needs a number of its own: a process id comes back after exec, and on another host.
std::vector<uint64_t> distinct_pids(Processes processes);

struct Row;
// "4711 (pt_main_thread)": Python's name and the kernel's, unless that is Python's cut off (3.14 sets it so).
std::string thread_label(const Row& row);

}  // namespace torchprof::formats
