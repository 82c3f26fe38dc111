// What every thread of a process is doing, or was doing when it died: the spans that its records leave open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/trace/python_stacks.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct OpenSpan {
  std::string name;   // as in the trace, modules with their path: "nn.Module: Linear_3 (decoder.head)"
  UnixNs begin;       // 0: not known, it is on the thread's stack alone
  uint32_t line = 0;  // that a Python function was executing; 0: not known
};

struct OpenThread {
  uint32_t tid = 0;
  std::string name;
  std::vector<OpenSpan> spans;  // outermost first
  uint64_t deeper = 0;          // number of calls inside the innermost one that are not listed
  UnixNs last;                  // its last record; 0: it has none
  UnixNs stack_at;              // when its Python stack was read; 0: it was not, or the thread went on
};

// The threads that have not ended, in the order in which they were first seen. One pass over the events. The process
// may still be writing the spool. If the last window is closed, nothing that was recorded is open.
//
// `stacks`: adds to each thread the frames that no event tells of, and lines. A stack that is older than the thread's
// last event of Python is left out. Where it contradicts what was recorded, what is newer holds.
std::vector<OpenThread> open_threads(const Process& process, std::span<const ThreadLines> stacks = {});

}  // namespace torchprof::formats
