// How long Python calls of a process were not recorded because a profiler of the program's own had taken the thread's
// only profile function (Python 3.10 and 3.11): a sum over threads for each such profiler.
//
// Records may come in any order, since only the sums of begins and ends are kept. A span without an end lasts until its
// thread's end, or the end of the capture. One without a begin was inherited by fork and began with the process.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

class BlindSums {
 public:
  // Takes any record; `track` is the thread that wrote it.
  void add(const RecordView& record, Ticks time, TrackId track);
  // After the clock, the start and the end of the process are known.
  std::vector<Blind> total(const Process& process) const;

 private:
  struct Sum {
    uint64_t begun = 0, ended = 0;
    uint64_t begins = 0, ends = 0;  // ticks, modulo 2^64
  };
  std::map<std::pair<TrackId, StringId>, Sum> sums_;
  std::unordered_map<TrackId, Ticks> thread_ends_;
};

}  // namespace torchprof::formats
