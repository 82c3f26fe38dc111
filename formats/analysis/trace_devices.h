// The kernels, copies and sets of a trace file, and the operators that launched them, by External id.
//
// Memory: 40 bytes for each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/analysis/gpu_statistics.h"

namespace torchprof::formats {

struct DeviceWork {
  int64_t begin;  // ns
  int64_t duration;
  uint32_t name;      // interned, like pid
  uint32_t pid;       // that of the device's row
  uint32_t external;  // 0: none
  float blocks_per_sm;
  float occupancy;  // 0 to 1
  bool is_kernel : 1;
  uint32_t stream : 31 = 0;  // row of the stream in ReadEvents::rows, plus 1; 0: the file does not say
};

class TraceDevices {
 public:
  // Kineto's categories for them; old files have them in capitals.
  static bool is_category(std::string_view category) {
    return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" || category == "Kernel" ||
           category == "Memcpy" || category == "Memset";
  }
  void add(const DeviceWork& work);
  void label(uint32_t pid, const std::string& text) { labels_[pid] = text; }                     // "GPU 0, rank 1"
  void property(uint32_t number, const std::string& name) { names_.try_emplace(number, name); }  // deviceProperties

  std::string label_of(uint32_t pid) const;  // of a device's row; empty: it has none

  bool empty() const { return work_.empty(); }
  int64_t launched_by(uint32_t external) const;  // sum of times, ns

  // To find the process of each device's row: an External id for each row that has one. The operator with that id is in
  // the owner. The functions below take the result as `owner` (pid of a device's row -> process); work of rows without
  // an owner goes to the process `otherwise`.
  std::unordered_map<uint32_t, uint32_t> owner_wanted() const;  // external id -> pid of the device's row
  std::map<uint32_t, GpuStatistics> finish(const std::unordered_map<uint32_t, uint32_t>& owner, uint32_t otherwise,
                                           int64_t captured_ns, const std::vector<const std::string*>& pids,
                                           const std::function<std::string_view(uint32_t)>& text) const;
  // Calls `visit` with the work of each process.
  void each(const std::unordered_map<uint32_t, uint32_t>& owner, uint32_t otherwise,
            const std::function<void(uint32_t process, const DeviceWork& work)>& visit) const;

 private:
  std::vector<DeviceWork> work_;
  std::unordered_map<uint32_t, int64_t> launched_;  // by External id
  std::unordered_map<uint32_t, std::string> labels_;
  std::map<uint32_t, std::string> names_;
};

}  // namespace torchprof::formats
