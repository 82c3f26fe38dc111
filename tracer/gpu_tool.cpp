#include "tracer/gpu_tool.h"

#include <link.h>

#include <cstdlib>
#include <cstring>

namespace torchprof {
namespace {

constexpr char kNsys[] = "nsys", kNcu[] = "ncu", kSanitizer[] = "compute-sanitizer", kNvprof[] = "nvprof";

constexpr GpuTool kVariables[] = {{kNsys, "NSYS_PROFILING_SESSION_ID"},
                                  {kNcu, "NV_COMPUTE_PROFILER_PERFWORKS_DIR"},
                                  {kNcu, "NV_NSIGHT_INJECTION_PORT_BASE"},
                                  {kNcu, "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"},
                                  {kSanitizer, "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN"},
                                  {kNvprof, "NVPROF_ID"}};
// The beginnings of file names. Newer versions of nsys preload libnsys.so instead of libToolsInjectionProxy64.so.
constexpr GpuTool kLibraries[] = {{kNsys, "libToolsInjection"},
                                  {kNsys, "libnsys.so"},
                                  {kNcu, "libcuda-injection.so"},
                                  {kSanitizer, "libsanitizer-collection.so"},
                                  {kNvprof, "libcuinj64"}};
constexpr const char* kInjections[] = {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"};

GpuTool tool_of_library(const char* path) noexcept {
  const char* slash = path ? strrchr(path, '/') : nullptr;
  const char* file = slash ? slash + 1 : path;
  for (const GpuTool& tool : kLibraries)
    if (file && strncmp(file, tool.mark, strlen(tool.mark)) == 0) return tool;
  return {};
}

int look_at(dl_phdr_info* info, size_t, void* found) noexcept {
  const GpuTool tool = tool_of_library(info->dlpi_name);
  if (!tool.name) return 0;
  *static_cast<GpuTool*>(found) = tool;
  return 1;
}

}  // namespace

GpuTool find_gpu_tool() noexcept {
  for (const GpuTool& tool : kVariables)
    if (const char* value = getenv(tool.mark); value && *value) return tool;
  for (const char* variable : kInjections)
    if (const GpuTool tool = tool_of_library(getenv(variable)); tool.name) return tool;
  GpuTool found{};
  dl_iterate_phdr(look_at, &found);
  return found;
}

}  // namespace torchprof
