// How much GPUs compute, next to what they could: a remark below the advice.
#pragma once

#include <string>

#include "formats/report/report.h"

namespace torchprof::formats {

// "operators of known FLOPs: 41.2 TFLOP/s while GPUs work, 8.4 over the whole time: 0.8 % of what a NVIDIA H100 80GB
// HBM3 does with 16-bit numbers (MFU)". Empty: no FLOPs are known, or no GPU worked. Of a GPU whose peak is not known
// without the share.
std::string flops_remark(const Report& report);

}  // namespace torchprof::formats
