// How long Python calls of a process were not recorded because the program's own profiler had the thread's one profile
// function (3.10 and 3.11), summed over threads, by who had it.
//
// Records may come in any order: of begins and ends only the sums are kept. What has no end lasts until its thread's
// end, or the end of the capture; what has no begin was inherited by fork and began with the process.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

class BlindSums {
 public:
  // Any record; `track` is the thread that wrote it.
  void add(const RecordView& record, Ticks time, TrackId track);
  // Once the process knows its clock, its start and its end.
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
