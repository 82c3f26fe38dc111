// Notes about GPUs, for below the tables.
#pragma once

#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// What was lost or is in doubt: one line for each cause.
std::vector<std::string> gpu_notes(const Process& process);

}  // namespace torchprof::formats
