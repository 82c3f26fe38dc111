// Whether a process can be attached to, and if not, which right is missing and what helps. Nothing of it is changed.
//
// Sources: ptrace(2) (access mode checking), proc(5), Linux's Documentation/admin-guide/LSM/Yama.rst; Yama was not
// tried.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/attach/image.h"

namespace torchprof::launcher {

struct AttachTarget {  // the process, as far as it can be seen
  uint32_t pid = 0;
  bool is_there = false;
  std::string refused{};  // why its memory may not be had, and what helps; empty: it may
  uint32_t minor = 0;     // Python 3.minor; 0: no interpreter that can be attached to
  bool has_torch = false;
  bool is_elsewhere = false;   // another root or mount namespace: our files are not there
  bool has_other_net = false;  // another network namespace
  uint32_t tracer = 0;         // the process that traces it (gdb, strace)
  char state = '?';            // of its main thread, as in /proc/PID/stat
  uint32_t seccomp = 0;        // 0: none, 1: strict, 2: a filter
  std::vector<std::string> command{};
};
AttachTarget look_at_target_process(const Image& image);

// Why it cannot be attached to, for people; empty: nothing is known to be in the way.
std::string why_not(const AttachTarget& target);

}  // namespace torchprof::launcher
