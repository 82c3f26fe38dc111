// What goes up and down on a device beside its work: what it says of itself, and what the driver has given out of its
// memory.
//
//   "SM clock (MHz)" "memory clock (MHz)" "temperature (C)" "power (mW)" "fan (%)"      CUPTI's samples, as they come
//   "driver memory (bytes)"    allocated on the device and not freed since the first window opened
//   "memory pools (bytes)"     of all pools of the device, as far as calls said their size
//
// Values as CUPTI has them; a device has those counters of which there is a value.
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

// Of the samples of a device's speed, how many were taken while its clock was held down, and why: 4 power cap, 8
// hardware (CUpti_EnvironmentClocksThrottleReason).
struct GpuThrottling {
  uint64_t samples = 0;
  uint64_t power = 0;
  uint64_t hardware = 0;
};
std::vector<std::pair<uint32_t, GpuThrottling>> gpu_throttling(const GpuIndex& index);  // by device

}  // namespace torchprof::formats
