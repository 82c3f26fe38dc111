// The command: started, accompanied, and followed in its end.
//
// stdin, stdout, stderr, the terminal and the process group are the command's as they are ours. The launcher is the
// subreaper of everything that it starts, so no descendant escapes its sight.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/signals.h"

namespace torchprof::launcher {

class Child {
 public:
  // Throws Error with 127 if there is no such command and 126 if it cannot be executed.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment, const Signals& signals);

  // Until the command ends: forwards signals, stops and continues with it, reaps orphans. The status as waitpid() has
  // it.
  int wait();

  // Until no descendant is left, or `limit` has passed, or SIGINT or SIGTERM came.
  // Those that still run.
  std::vector<pid_t> wait_for_descendants(std::chrono::milliseconds limit);

 private:
  void forward(const Signal& signal);
  void stop_with_it(int signal);
  void continue_it() const;

  const Signals& signals_;
  pid_t pid_ = 0;
  bool terminal_asked_to_stop_ = false;  // Ctrl-Z since the command last ran
  bool stopped_unasked_ = false;         // by SIGSTOP, without Ctrl-Z as far as we know
};

// Becomes the command, untraced by a launcher of its own. Throws as Child does.
[[noreturn]] void become(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// Exits with the same status, or dies by the same signal and without a core of its own.
[[noreturn]] void end_like(int wait_status);

// Living descendants of this process, from /proc.
std::vector<pid_t> descendants();

}  // namespace torchprof::launcher
