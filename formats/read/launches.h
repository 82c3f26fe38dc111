// Which operator launched a kernel, copy or set of a trace file in Kineto's form: the innermost one around the call of
// CUDA that has the work's correlation, on the call's thread.
//
// The "External id" that Kineto gives to work names the operator, too, but in files before torch 1.12 it is the
// correlation itself, which may be the id of any operator. So it is believed only in files without calls.
//
// Memory: 64 bytes for each piece of work, until the file is read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/read/events.h"

namespace torchprof::formats {

class LaunchMatcher {
 public:
  // Kineto's categories for calls of CUDA and HIP; old files have them in capitals.
  static bool is_call(std::string_view category);

  void work(const DeviceWork& work) { work_.push_back(work); }

  // Gives `events` the work, credited by the calls of `events`. Its operators have other External ids from then on:
  // each its own.
  void finish(ReadEvents& events);

 private:
  std::vector<DeviceWork> work_;
};

}  // namespace torchprof::formats
