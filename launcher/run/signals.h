// The signals to the launcher, fetched one by one instead of with handlers.
//
// While a Signals object lives, all signals are blocked, and next() returns them. Not blocked are SIGKILL and SIGSTOP,
// which cannot be, and SIGTTIN and SIGTTOU, with which the terminal stops a job in the background. Instead of SIGPIPE
// and SIGXFSZ our own writes get errors. SIGCHLD is not ignored, so that children can be waited for. One object in a
// process, used on one thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace torchprof::launcher {

struct Signal {
  int number;
  int code;                     // si_code
  pid_t sender;                 // 0: unknown
  sigval value;                 // valid if `code` is SI_QUEUE
  bool is_of_terminal() const;  // sent to the whole foreground group: the command has it already
  bool is_our_own() const;      // about our own children or limits: not to be forwarded
};

class Signals {
 public:
  Signals();
  ~Signals();  // restores mask and dispositions
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Restores mask and dispositions as they were when this process began. Async-signal-safe, for use in a forked child.
  void restore() const;

  // The next signal; without a timeout it waits for ever.
  std::optional<Signal> next(std::optional<std::chrono::milliseconds> timeout = {}) const;
  // For poll(): readable while next() has one. The caller closes it.
  int open_descriptor() const;

 private:
  sigset_t handed_out_;
  sigset_t mask_before_;
  struct sigaction sigchld_before_, sigpipe_before_, sigxfsz_before_;
};

// Lets `signal` have its default effect on this process, even if it is blocked or ignored: the process stops until it
// is continued, or dies.
void act_out(int signal);

}  // namespace torchprof::launcher
