// What every thread of a process is doing, or was doing when it died: the spans that its records leave open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct OpenSpan {
  std::string name;  // as in the trace, modules with their path: "nn.Module: Linear_3 (decoder.head)"
  UnixNs begin;
};

struct OpenThread {
  uint32_t tid = 0;
  std::string name;
  std::vector<OpenSpan> spans;  // outermost first
  uint64_t deeper = 0;          // number of calls inside the innermost one that are not listed
  UnixNs last;                  // its last record
};

// The threads that have not ended, in the order in which they were first seen; none if the last window is closed. One
// pass over the events. The process may still be writing the spool.
std::vector<OpenThread> open_threads(const Process& process);

}  // namespace torchprof::formats
