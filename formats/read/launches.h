// Which operator launched a kernel, copy or set of a trace file in Kineto's form: the innermost one around the call of
// CUDA that has the work's correlation, on the call's thread.
//
// The "External id" that Kineto gives to work names the operator, too, but in files before torch 1.12 it is the
// correlation itself, which may be the id of any operator. So it is believed only in files without calls.
//
// Memory: 48 bytes for each piece of work, 24 for each call, until the file is read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/read/events.h"

namespace torchprof::formats {

class Launches {
 public:
  // Kineto's categories for calls of CUDA and HIP; old files have them in capitals.
  static bool is_call(std::string_view category);

  // `correlation` 0: none. The row is that of ReadEvents.
  void call(int64_t begin, int64_t end, uint32_t row, uint32_t correlation) {
    if (correlation != 0) calls_.push_back({begin, end, row, correlation});
  }
  void work(const DeviceWork& work, uint32_t correlation) { work_.push_back({work, correlation}); }

  // Gives `events` the work. Operators of `events` have other External ids from then on: each its own.
  void finish(ReadEvents& events);

 private:
  struct Call {
    int64_t begin, end;  // ns
    uint32_t row, correlation;
  };
  struct Work {
    DeviceWork work;
    uint32_t correlation;
  };
  std::vector<Call> calls_;
  std::vector<Work> work_;
};

}  // namespace torchprof::formats
