// Adds up kernels, copies and sets by name, and how long each device was busy.
//
// Memory: 16 bytes for each of them until the end, since they come in no order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torchprof::formats {

struct GpuTally {
  uint64_t calls = 0;
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  bool is_kernel = false;  // not a copy or a set
  // For kernels, sums over calls: the grid's blocks per multiprocessor, and the estimated occupancy (0 to 1).
  double blocks_per_sm = 0;
  double occupancy = 0;
  GpuTally& operator+=(const GpuTally& other);
};
using GpuTallies = std::unordered_map<std::string, GpuTally>;  // by name

struct GpuDeviceUse {
  uint32_t device = 0;
  std::string name{};       // empty: not known
  int64_t busy_ns = 0;      // time in which at least one kernel, copy or set ran
  int64_t captured_ns = 0;  // time of the capture
  uint64_t kernels = 0;
  int64_t kernel_ns = 0;  // sum over kernels, whether or not they ran at the same time
  uint64_t copies = 0;    // and sets
  int64_t copy_ns = 0;
};

struct GpuStatistics {
  GpuTallies work;
  std::vector<GpuDeviceUse> devices;  // empty in a sum over processes
  GpuStatistics& operator+=(const GpuStatistics& other);
};

struct GpuWork {
  uint32_t name;  // a small dense number of the caller's choice
  uint32_t device;
  bool is_kernel;
  int64_t begin;  // ns, on any clock
  int64_t end;
  double blocks_per_sm;
  double occupancy;
};

class GpuCollector {
 public:
  void add(const GpuWork& work);
  GpuStatistics finish(int64_t captured_ns, const std::function<std::string_view(uint32_t)>& text);

 private:
  struct Device {
    GpuDeviceUse use;
    std::vector<std::pair<int64_t, int64_t>> spans;
  };
  std::vector<GpuTally> tallies_;  // by name
  std::map<uint32_t, Device> devices_;
};

}  // namespace torchprof::formats
