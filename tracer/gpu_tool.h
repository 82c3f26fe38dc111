// Another tool that has the GPU of this process to itself: CUPTI serves only one, and a second one breaks the first.
//
// A tool is recognised by the variables that it sets in the program that it starts, by its library in
// CUDA_INJECTION64_PATH or NVTX_INJECTION64_PATH, and by its libraries in the process. A tool that shows in none of
// these ways (cuda-gdb) is only noticed by its subscription (cupti/cupti_source.cpp).
//
// Source of the names: the environments of nsys 2022 to 2026, ncu 2020 to 2025 and compute-sanitizer, as written down
// by programs that test for them (GROMACS api_utilities, DeepGEMM and FlashMLA testing utilities, records of processes
// under ncu); we have run no such tool.
#pragma once

namespace torchprof {

struct GpuTool {
  const char* name;  // "nsys"; nullptr: there is none
  const char* mark;  // the variable or library by which it was recognised
};

// From anywhere, also from a constructor. A later call may find a tool that an earlier one did not: it may begin late.
GpuTool find_gpu_tool() noexcept;

}  // namespace torchprof
