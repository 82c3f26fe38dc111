#include "launcher/run/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace torchprof::launcher {
namespace {

constexpr int kLeftAlone[] = {SIGKILL, SIGSTOP, SIGTTIN, SIGTTOU};
constexpr int kOfTerminal[] = {SIGINT, SIGQUIT, SIGTSTP, SIGHUP, SIGWINCH};
constexpr int kOfWrites[] = {SIGPIPE, SIGXFSZ};

bool is_one_of(const auto& signals, int number) {
  return std::find(std::begin(signals), std::end(signals), number) != std::end(signals);
}

}  // namespace

bool Signal::is_of_terminal() const { return code == SI_KERNEL && is_one_of(kOfTerminal, number); }

bool Signal::is_our_own() const {
  return (number == SIGCHLD && code > 0) || (number == SIGXCPU && code == SI_KERNEL) ||
         (is_one_of(kOfWrites, number) && sender == getpid());
}

Signals::Signals() {
  sigfillset(&handed_out_);
  for (const int signal : kLeftAlone) sigdelset(&handed_out_, signal);
  sigprocmask(SIG_BLOCK, &handed_out_, &mask_before_);
  // Our parent may have ignored SIGCHLD, and then children leave no status.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &sigchld_before_);
  // A write that fails should return its error. They are also ignored so that signals of our own writes, which nobody
  // has fetched, do not kill us when they are unblocked at the end.
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &sigpipe_before_);
  sigaction(SIGXFSZ, &ignore, &sigxfsz_before_);
}

Signals::~Signals() { restore(); }

void Signals::restore() const {
  sigset_t of_writes;
  sigemptyset(&of_writes);
  for (const int signal : kOfWrites) sigaddset(&of_writes, signal);
  sigprocmask(SIG_UNBLOCK, &of_writes, nullptr);
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
  const bool has_sender = info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL;
  return Signal{number, info.si_code, has_sender ? info.si_pid : 0, info.si_value};
}

int Signals::open_descriptor() const { return signalfd(-1, &handed_out_, SFD_CLOEXEC | SFD_NONBLOCK); }

void act_out(int signal) {
  struct sigaction standard = {}, before;
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, &before);
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &one, &mask);  // the signal acts here
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  sigaction(signal, &before, nullptr);
}

}  // namespace torchprof::launcher
