// Starts the command, forwards signals to it, and ends as it ended.
//
// The command has our stdin, stdout, stderr, terminal and process group. Its orphans become children of whatever
// process collects orphans here, which is the launcher only if it is process 1 of a container.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/run/signals.h"
#include "launcher/run/witness.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

class Child {
 public:
  // Throws Error with status 127 if there is no such command, and 126 if it cannot be executed. `marks`: how to
  // recognise processes that it starts.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment, const Signals& signals,
        Marks marks);

  // Waits until the command ends: forwards signals, stops and continues with it, reaps orphans. Returns its status as
  // from waitpid().
  int wait();

  // Waits until `look` finds no process of the command any more, `limit` has passed, or SIGINT or SIGTERM comes.
  // Returns those that still run.
  std::vector<Running> wait_for_others(const std::function<std::vector<Running>()>& look,
                                       std::chrono::milliseconds limit);

 private:
  void forward(const Signal& signal);
  bool went_to_group(const Signal& signal);
  void stop_with_it(int signal) const;
  void continue_it() const;

  const Signals& signals_;
  Witness witness_;
  std::chrono::steady_clock::time_point seen_{};  // the last signal to the group
  int seen_number_ = 0;
  pid_t seen_sender_ = 0;
  Marks marks_;
  pid_t pid_ = 0;
};

// Replaces this process by the command. Throws like Child.
[[noreturn]] void become(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// Exits with the same status, or dies by the same signal without a core dump of our own.
[[noreturn]] void end_like(int wait_status);

}  // namespace torchprof::launcher
