// Counters of a device over time: the samples of its clocks, temperature, power and fan, and the memory that the driver
// has given out.
//
//   "SM clock (MHz)", "memory clock (MHz)", "temperature (C)", "power (mW)", "fan (%)"
//                              CUPTI's samples
//   "driver memory (bytes)"    allocated on the device since the first window opened, and not freed
//   "memory pools (bytes)"     of all memory pools of the device whose size was in a call
//
// The values are CUPTI's. A counter without values is left out.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tracer/spool/ids.h"

namespace torchprof::formats {

class GpuIndex;

struct GpuCounter {
  uint32_t device;
  std::string_view name;
  bool is_bytes;
  std::vector<std::pair<UnixNs, int64_t>> values;  // by time
};

std::vector<GpuCounter> gpu_counters(const GpuIndex& index);

// How many samples of a device's clocks were taken while they were held down, and why: the power cap (bit 4) or the
// hardware (bit 8 of CUpti_EnvironmentClocksThrottleReason).
struct GpuThrottling {
  uint64_t samples = 0;
  uint64_t power = 0;
  uint64_t hardware = 0;
};
std::vector<std::pair<uint32_t, GpuThrottling>> gpu_throttling(const GpuIndex& index);  // by device

}  // namespace torchprof::formats
