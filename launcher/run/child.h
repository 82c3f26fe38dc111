// The command: started, accompanied, and followed in its end.
//
// stdin, stdout, stderr, the terminal and the process group are the command's as they are ours. So are its orphans:
// they become children of whoever collects them here, and of the launcher only where it is process 1 of a container.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/run/signals.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

class Child {
 public:
  // Throws Error with 127 if there is no such command and 126 if it cannot be executed. `marks`: of what it starts.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment, const Signals& signals,
        Marks marks);

  // Until the command ends: forwards signals, stops and continues with it, reaps orphans. The status as waitpid() has
  // it.
  int wait();

  // Until `look` finds no process of the command any more, or `limit` has passed, or SIGINT or SIGTERM came. Those that
  // still run.
  std::vector<Running> wait_for_others(const std::function<std::vector<Running>()>& look,
                                       std::chrono::milliseconds limit) const;

 private:
  void forward(const Signal& signal) const;
  void stop_with_it(int signal) const;
  void continue_it() const;

  const Signals& signals_;
  Marks marks_;
  pid_t pid_ = 0;
};

// Becomes the command, untraced by a launcher of its own. Throws as Child does.
[[noreturn]] void become(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// Exits with the same status, or dies by the same signal and without a core of its own.
[[noreturn]] void end_like(int wait_status);

}  // namespace torchprof::launcher
