// Labels by which people tell the processes and threads of a run apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// "python3 4711", with a role (trace/roles.h) "python3 4711, rank 1", of several hosts ", on HOST". The bytes are the
// program's and may be no UTF-8.
std::string process_label(const Process& process);

// Basename of argv[0]; "unknown" if there is none.
std::string_view program_name(const Process& process);

// A different number for each process, as a trace needs it: process ids repeat after exec and on other hosts.
std::vector<uint64_t> distinct_pids(Processes processes);

struct Row;
// "4711 (pt_main_thread)": Python's name and the kernel's. Not the kernel's if that is Python's name cut short, as
// Python 3.14 sets it.
std::string thread_label(const Row& row);

}  // namespace torchprof::formats
