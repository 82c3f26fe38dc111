// The Python stacks of a process's threads beside its events: as a thread of ours in the process recorded them (in a
// hang, and when it opened or closed a window), or as the memory of a process that lives shows them now.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
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

// Cuts from a path what an import put before it, as is known of the functions that were recorded.
class ImportPrefixes {
 public:
  explicit ImportPrefixes(const Process& process);
  size_t length(std::string_view file) const;
  std::string_view cut(std::string_view file) const { return file.substr(length(file)); }

 private:
  std::set<std::string_view> prefixes_;
};

// What was recorded. None of a thread that went on to a later step.
std::vector<ThreadLines> stated_stacks(const Process& process);

// The functions of those stacks are named as those that the threads themselves recorded. While a Process is loaded.
void trim_stated(Process& process);

// Whether the code says that it is this function; long texts are cut.
bool is_of(const Process& process, const StackLine& line, FunctionId function);

struct StatedFrame {
  FunctionId function;
  ObjectId object;  // as the thread itself says it later; none: it does not
};
struct StatedFrames {
  uint32_t tid = 0;
  std::vector<StatedFrame> frames;  // outermost first
};

// The frames that threads had when the last window opened and that no event of it tells, where it was not closed. Each
// has been on its thread's stack since then: a thread that returns or calls says so. Where it goes on later and states
// its stack itself, frames that are in both are as it says them.
std::vector<StatedFrames> stated_in_last_window(const Process& process);

// Whether the memory of a process may be read by us, as ptrace(2) says of PTRACE_MODE_ATTACH.
bool may_read(uint32_t pid);

// Reads the memory of a process that lives; `pid` in our PID namespace, `now` its time. No thread of it is stopped or
// takes part. Empty: it has no Python, or its memory may not be read.
std::vector<ThreadLines> read_stacks(const Process& process, uint32_t pid, UnixNs now);

}  // namespace torchprof::formats
