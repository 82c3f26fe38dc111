// The Python stacks of a process's threads beside its events: as a thread of ours in the process recorded them (in a
// hang, and when it opened or closed a window), or as the memory of a process that lives shows them now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct StackLine {
  std::string file;         // whole
  std::string name;         // qualified from 3.11 on
  uint32_t first_line = 0;  // of the function
  uint32_t line = 0;        // that was executed; 0: not known
};

struct ThreadLines {
  uint32_t tid = 0;
  std::string name;              // of the thread, as the kernel has it now; empty: not known
  UnixNs at;                     // when the stack was so
  uint64_t beyond = 0;           // frames further out
  std::vector<StackLine> lines;  // outermost first
};

// What was recorded. None of a thread that went on to a later step.
std::vector<ThreadLines> stated_stacks(const Process& process);

// Whether the memory of a process may be read by us, as ptrace(2) says of PTRACE_MODE_ATTACH.
bool may_read(uint32_t pid);

// Reads the memory of a process that lives; `pid` in our PID namespace, `now` its time. No thread of it is stopped or
// takes part. Empty: it has no Python, or its memory may not be read.
std::vector<ThreadLines> read_stacks(const Process& process, uint32_t pid, UnixNs now);

}  // namespace torchprof::formats
