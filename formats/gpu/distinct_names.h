// Short names of the kernels of one table (kernel_names.h), each different from all others there.
//
// Kernels that share a short name get the words of their whole names that not all of those have:
//
//   nvjet_sm90_tst_64x32_64x16_4x1_v_bz_NTT         gemm bf16 64x32x64 NT (nvjet sm90) [4x1]
//   nvjet_sm90_tst_64x32_64x16_2x1_v_bz_coopA_NTT   gemm bf16 64x32x64 NT (nvjet sm90) [2x1 coopA]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

// As many as `names`, in their order. `names`: as kernel_name() gives them, each once. Time linear in their length,
// apart from sorting.
std::vector<std::string> distinct_kernel_names(const std::vector<std::string_view>& names);

}  // namespace torchprof::formats
