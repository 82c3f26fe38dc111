// What each thread did: for how long anything of it was recorded as running, and the self times of what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/replay/replay.h"

namespace torchprof::formats {

struct ThreadTally {
  std::string name;  // "4711 (pt_main_thread)"
  int64_t open_ns = 0;
  int64_t operator_ns = 0;  // self times
  int64_t python_ns = 0;
  uint64_t operators = 0;
  uint64_t python_calls = 0;  // and C calls
  int64_t gpu_ns = 0;         // of kernels, copies and sets that it launched
};

class ThreadCollector {
 public:
  void slice(const Slice& slice);
  void gpu(const GpuActivity& activity);
  // Threads with anything, in the order of rows; what has a row of its own is of the thread that it belongs to.
  std::vector<ThreadTally> finish(const std::vector<Row>& rows) const;

 private:
  ThreadTally& at(uint32_t row);
  std::vector<ThreadTally> tallies_;  // by row
};

}  // namespace torchprof::formats
