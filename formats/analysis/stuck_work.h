// What devices had not finished when a process was last heard of: the oldest work of each stream that had gone on, or
// waited for another stream, for a second or more, and who launched it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct StuckWork {
  uint32_t device = 0;
  uint32_t context = 0;
  uint32_t stream = 0;
  std::string name;       // of the kernel; empty: a copy or a set
  UnixNs since;           // when it was first seen to be the oldest of its stream
  uint32_t launched = 1;  // pieces of work in the stream that had not ended, with this one; a lower bound
  // Of the call that launched it; empty and 0 if it was not recorded.
  uint32_t tid = 0;
  std::vector<std::string> spans;  // what was open on its thread: functions, modules, operators, outermost first
  std::string collective;          // "allreduce, number 7 of group 0 (default_pg)"; empty: it is none
};

// By device and stream. Reads all events of the process if there is anything; it may still be writing its spool.
std::vector<StuckWork> stuck_work(const Process& process);

}  // namespace torchprof::formats
