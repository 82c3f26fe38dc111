#include "formats/report/flops_remark.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

// Teraflops of tensor cores with bfloat16 or float16, accumulated in float32, dense, from NVIDIA's data sheets. The
// first that the device's name contains counts, so that variants stand before what they are variants of.
struct Peak {
  std::string_view name;
  double tflops;
};
constexpr std::array<Peak, 19> kPeaks = {{{"B200", 2250},
                                          {"GH200", 989},
                                          {"H200", 989},
                                          {"H100 PCIe", 756},
                                          {"H100 NVL", 835},
                                          {"H100", 989},
                                          {"H20", 148},
                                          {"A100", 312},
                                          {"A800", 312},
                                          {"L40S", 362},
                                          {"L40", 181},
                                          {"L4", 121},
                                          {"A10G", 70},
                                          {"A10", 125},
                                          {"A40", 150},
                                          {"V100", 125},
                                          {"T4", 65},
                                          {"RTX 4090", 165},
                                          {"RTX 3090", 71}}};

double peak_of(std::string_view device) {
  const auto known =
      std::ranges::find_if(kPeaks, [device](const Peak& p) { return device.find(p.name) != device.npos; });
  return known == kPeaks.end() ? 0 : known->tflops;
}

}  // namespace

std::string flops_remark(const Report& report) {
  double flops = 0;
  for (const auto& [name, tally] : report.all.operators) flops += static_cast<double>(tally.flops);
  int64_t busy_ns = 0, captured_ns = 0;
  std::string device;
  bool is_one_kind = true;
  for (const ReportPart& part : report.parts)
    for (const GpuDeviceUse& use : part.statistics.gpu.devices) {
      if (use.kernels == 0) continue;
      add_to(busy_ns, use.busy_ns);
      add_to(captured_ns, use.captured_ns);
      is_one_kind = is_one_kind && (device.empty() || device == use.name);
      device = use.name;
    }
  if (flops <= 0 || busy_ns <= 0 || captured_ns < busy_ns) return {};
  constexpr double kPerNs = 1e-3;  // FLOPs in a nanosecond are GFLOP/s
  const double busy = flops / static_cast<double>(busy_ns) * kPerNs;
  const double whole = flops / static_cast<double>(captured_ns) * kPerNs;
  std::string text = "operators of known FLOPs: " + print("%.3g", busy) + " TFLOP/s while GPUs work, " +
                     print("%.3g", whole) + " over the whole time";
  const double peak = is_one_kind ? peak_of(device) : 0;
  if (peak > 0)
    text += ": " + print("%.2g", 100 * whole / peak) + " % of what a " + printable(device) +
            " does with 16-bit numbers (MFU)";
  return text;
}

}  // namespace torchprof::formats
