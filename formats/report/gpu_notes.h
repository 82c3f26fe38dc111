// Notes about GPUs: what is not in the trace, and what is to be known of what is in it.
#pragma once

#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// What was lost: one line for each cause.
std::vector<std::string> gpu_notes(const Process& process);
// For below the table of GPUs: times that are in doubt, and clocks that were held down.
std::vector<std::string> gpu_remarks(const Process& process);

}  // namespace torchprof::formats
