// Another tool that has the GPU of this process to itself: CUPTI serves one, and who comes second breaks the first.
//
// Recognised by what each leaves in the environment of the program that it starts, by its library in
// CUDA_INJECTION64_PATH or NVTX_INJECTION64_PATH, and by its libraries in the process. A tool that leaves none of
// these (cuda-gdb) is found out by its subscription alone (cupti/cupti_source.cpp).
//
// Source of the names: the environments of nsys 2022 to 2026, ncu 2020 to 2025 and compute-sanitizer as programs that
// test for them have written them down (GROMACS api_utilities, DeepGEMM and FlashMLA testing utilities, records of
// processes under ncu); no such tool has been run here.
#pragma once

namespace torchprof {

struct GpuTool {
  const char* name;  // "nsys"; nullptr: there is none
  const char* mark;  // by which it was recognised
};

// From anywhere, also a constructor. A later call may find what an earlier one could not: a tool that begins late.
GpuTool find_gpu_tool() noexcept;

}  // namespace torchprof
