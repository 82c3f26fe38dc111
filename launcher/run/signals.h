// The signals that the launcher takes part in, taken one by one instead of by handlers.
//
// While a Signals lives all are blocked and handed out by next(), but SIGKILL and SIGSTOP, which cannot be, and SIGTTIN
// and SIGTTOU, by which the terminal stops a job that is in the background. SIGPIPE and SIGXFSZ of our own writes are
// errors of write() instead. SIGCHLD is never ignored, so that children can be waited for. One object a process, one
// thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace torchprof::launcher {

struct Signal {
  int number;
  int code;                     // si_code
  pid_t sender;                 // 0: unknown
  sigval value;                 // with SI_QUEUE
  bool is_of_terminal() const;  // the kernel sent it to the whole foreground group: the command has it already
  bool is_our_own() const;      // what became of a child or of a limit of this process: nobody else's business
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
  // For poll(): readable while next() has one. The caller closes it.
  int open_descriptor() const;

 private:
  sigset_t handed_out_;
  sigset_t mask_before_;
  struct sigaction sigchld_before_, sigpipe_before_, sigxfsz_before_;
};

// This process does by default what `signal` does, blocked or not, ignored or not: it stops, until continued, or dies.
void act_out(int signal);

}  // namespace torchprof::launcher
