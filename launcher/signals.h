// The signals that the launcher takes part in, taken one by one instead of by handlers.
//
// While a Signals lives they are blocked: SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGTSTP SIGCONT SIGCHLD are
// handed out by next(); SIGPIPE and SIGXFSZ are errors of write() instead. SIGCHLD is never ignored, so that children
// can be waited for. One object a process, one thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace torchprof::launcher {

struct Signal {
  int number;
  pid_t sender;        // 0: unknown
  bool from_terminal;  // the kernel sent it to the whole foreground group: the command has it already
};

class Signals {
 public:
  Signals();
  ~Signals();  // as it was
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Async-signal-safe: for a forked child. Mask and dispositions as they were when this process began.
  void restore() const;

  // The next one; without a timeout waits for ever.
  std::optional<Signal> next(std::optional<std::chrono::milliseconds> timeout = {}) const;

 private:
  sigset_t handed_out_;
  sigset_t mask_before_;
  struct sigaction sigchld_before_, sigpipe_before_, sigxfsz_before_;
};

// This process does by default what `signal` does, blocked or not, ignored or not: it stops, until continued, or dies.
void act_out(int signal);

}  // namespace torchprof::launcher
