#include "launcher/signals.h"

namespace torchprof::launcher {
namespace {

constexpr int kHandedOut[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};

}  // namespace

Signals::Signals() {
  sigemptyset(&handed_out_);
  for (const int signal : kHandedOut) sigaddset(&handed_out_, signal);
  sigprocmask(SIG_BLOCK, &handed_out_, &mask_before_);
  // Whoever started us may have ignored SIGCHLD, and then children leave no status behind.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &sigchld_before_);
  // To a write that fails we want the error. Blocked, they would wait for us and kill at the very end.
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &sigpipe_before_);
  sigaction(SIGXFSZ, &ignore, &sigxfsz_before_);
}

Signals::~Signals() { restore(); }

void Signals::restore() const {
  sigaction(SIGCHLD, &sigchld_before_, nullptr);
  sigaction(SIGPIPE, &sigpipe_before_, nullptr);
  sigaction(SIGXFSZ, &sigxfsz_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<Signal> Signals::next(std::optional<std::chrono::milliseconds> timeout) const {
  siginfo_t info;
  const long ms = timeout ? static_cast<long>(timeout->count()) : 0;
  const timespec limit{ms / 1000, ms % 1000 * 1'000'000};
  const int number = sigtimedwait(&handed_out_, &info, timeout ? &limit : nullptr);
  if (number < 0) return {};
  return Signal{number, info.si_code == SI_USER || info.si_code == SI_QUEUE ? info.si_pid : 0,
                info.si_code == SI_KERNEL};
}

void act_out(int signal) {
  struct sigaction standard = {}, before;
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, &before);
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &one, &mask);  // here it happens
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  sigaction(signal, &before, nullptr);
}

}  // namespace torchprof::launcher
