// What each thread did: how long anything recorded ran on it, and self times by kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/replay/replay.h"

namespace torchprof::formats {

struct ThreadTally {
  std::string name;  // "4711 (pt_main_thread)"
  int64_t open_ns = 0;
  int64_t operator_ns = 0;  // sum of self times
  int64_t python_ns = 0;
  uint64_t operators = 0;
  uint64_t python_calls = 0;  // and C calls
  int64_t gpu_ns = 0;         // time of kernels, copies and sets that it launched
};

// "(pt_main_thread)" of "4711 (pt_main_thread)".
std::string_view without_number(std::string_view label);

class ThreadCollector {
 public:
  void slice(const Slice& slice);
  void gpu(const GpuActivity& activity);
  // The threads on which anything ran, in the order of rows. An overflow row counts for the thread to which it belongs.
  std::vector<ThreadTally> finish(const std::vector<Row>& rows) const;

 private:
  ThreadTally& at(uint32_t row);
  std::vector<ThreadTally> tallies_;  // by row
};

}  // namespace torchprof::formats
