// What every thread of a process is doing, or was doing when it died: the spans that its records leave open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct OpenSpan {
  std::string name;  // as in the trace; a module with its path: "nn.Module: Linear_3 (decoder.head)"
  UnixNs begin;
};

struct OpenThread {
  uint32_t tid = 0;
  std::string name;
  std::vector<OpenSpan> spans;  // outermost first
  uint64_t deeper = 0;          // calls inside of these that are not listed
  UnixNs last;                  // its last record
};

// The threads that have not ended, in the order in which they were first seen; none where the window is closed. One
// pass over the events; the spool may still be written to.
std::vector<OpenThread> open_threads(const Process& process);

}  // namespace torchprof::formats
