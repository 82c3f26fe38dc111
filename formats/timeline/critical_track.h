// The critical path of a process's steps as slices of one more row of a trace: what each instant of a step waited for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct CriticalSlice {
  int64_t begin;  // Unix ns
  int64_t end;
  std::string name;   // "kernel: gemm", "idle"
  std::string place;  // the program's own line; empty: not known
};

// Of the steps that a timeline holds (timeline.h), without other ranks. In the order of time, without overlaps, within
// the process's selection. Replays the process twice.
std::vector<CriticalSlice> critical_track_of(const Process& process);

}  // namespace torchprof::formats
