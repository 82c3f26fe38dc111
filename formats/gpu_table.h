// Tables of GPUs for people (formats/table.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/gpu_statistics.h"
#include "formats/trace.h"

namespace torchprof::formats {

struct GpuLine {
  std::string pid;
  GpuDeviceUse use;
};

// Empty if there is none.
std::string devices_table(const std::vector<GpuLine>& devices);

// The first `rows`, by "self" or "total" (the same here), "calls" or "average", the largest first.
std::string kernels_table(const GpuTallies& work, size_t rows, std::string_view order);

// What was lost or is in doubt: a line for each cause.
std::vector<std::string> gpu_notes(const Process& process);

}  // namespace torchprof::formats
