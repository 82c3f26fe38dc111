// What the first use of something cost, which sums over all calls hide: CUDA itself and code of kernels, from the calls
// that CUPTI recorded, and first calls of operators, in which cuBLAS, cuDNN and others make themselves ready or choose
// among algorithms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/analysis/tally.h"

namespace torchprof::formats {

// Lines for people, below the table of operators; none where it was little. `operator_ns`: all self times.
//   "first use of CUDA: 112.1 ms to make it ready (aten::empty_strided), 60.1 ms to load code of kernels (aten::mm)"
//   "first calls: aten::cudnn_convolution 1.698 s of 1.700 s"
std::vector<std::string> first_use_remarks(const Tallies& operators, int64_t operator_ns);

}  // namespace torchprof::formats
