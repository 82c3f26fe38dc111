// Short names for the kernels of NVIDIA's libraries whose names are words with underscores: cuBLAS, cuDNN, CUTLASS,
// NCCL. Nobody documents these schemes; they were read from the names that these libraries gave (CUDA 10 to 13).
#pragma once

#include <string>
#include <string_view>

namespace torchprof::formats {

// Empty: not such a name.
std::string library_kernel_name(std::string_view name);

}  // namespace torchprof::formats
