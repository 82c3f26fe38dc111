#include "tracer/process/own_thread.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <csignal>

#include "tracer/process/seal.h"

namespace torchprof {
namespace {
constinit std::atomic<OwnThread*> g_first{nullptr};
}

bool OwnThread::start() noexcept {
  const seal::Calls calls;
  if (!calls) return false;
  must_end_.store(false, std::memory_order_relaxed);
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);  // of its own writes to the spool (spool/fault.h): one that is blocked ends the process
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto run = [](void* self) -> void* {
    OwnThread& thread = *static_cast<OwnThread*>(self);
    thread.tid_.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
    // Of itself: to name another thread libc opens a file.
    prctl(PR_SET_NAME, thread.name_);
    thread.body_();
    return nullptr;
  };
  const bool started = pthread_create(&thread_, nullptr, run, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return false;
  pid_.store(getpid(), std::memory_order_relaxed);
  state_.store(State::kRuns, std::memory_order_release);  // publishes thread_; pairs with has_ended() and end_all()
  if (!is_listed_) {
    is_listed_ = true;
    next_ = g_first.load(std::memory_order_relaxed);
    // Publishes next_ and pid_; pairs with the loads of g_first in end_all() and start_again().
    while (!g_first.compare_exchange_weak(next_, this, std::memory_order_release)) continue;
  }
  return true;
}

// Another thread may seal at the same time: only the one that gets from kRuns to kJoining joins.
bool OwnThread::has_ended() noexcept {
  State expected = State::kRuns;
  // Pairs with the release of kRuns in start(), and with the one below in another thread: thread_ is what it says.
  if (!state_.compare_exchange_strong(expected, State::kJoining, std::memory_order_acquire))
    return expected != State::kJoining;
  const bool has_ended = pthread_tryjoin_np(thread_, nullptr) == 0;  // the kernel itself says that it is gone
  // Pairs with the compare_exchange in start_again(), which writes thread_ after this join, and with the one above.
  state_.store(has_ended ? State::kEnded : State::kRuns, std::memory_order_release);
  return has_ended;
}

bool OwnThread::end() noexcept {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 20'000};  // it takes some 100 us
  constexpr int kSecond = 10'000;
  // Pairs with the release of kRuns in start().
  if (!is_of(getpid()) || state_.load(std::memory_order_acquire) != State::kRuns) return false;
  must_end_.store(true, std::memory_order_relaxed);
  wake_();
  for (int tries = 0; !has_ended(); ++tries) {
    if (tries == kSecond) return false;
    nanosleep(&kPause, nullptr);
  }
  // Joined is a thread when its memory is free; a moment later the kernel takes it off the number of threads (in one
  // step with its id) that /proc/self/stat has.
  const pid_t tid = tid_.load(std::memory_order_relaxed);
  for (int tries = 0; tries < kSecond && syscall(SYS_tgkill, getpid(), tid, 0) == 0; ++tries)
    nanosleep(&kPause, nullptr);
  // Not start_again()'s to start, unless that has done so by now.
  State ended = State::kEnded;
  state_.compare_exchange_strong(ended, State::kNone, std::memory_order_relaxed);
  return true;
}

int64_t OwnThread::processor_time() const noexcept {
  // The number of its clock is made as pthread_getcpuclockid() makes it, which wants a thread that is not joined yet:
  // CPUCLOCK_SCHED and CPUCLOCK_PERTHREAD_MASK, include/linux/posix-timers.h.
  const pid_t tid = tid_.load(std::memory_order_relaxed);
  if (tid == 0) return 0;
  const auto clock = static_cast<clockid_t>(~static_cast<unsigned>(tid) << 3 | 6);
  timespec ran{};
  clock_gettime(clock, &ran);
  return int64_t{ran.tv_sec} * 1'000'000'000 + ran.tv_nsec;
}

unsigned OwnThread::running() noexcept {
  unsigned count = 0;
  // Pairs with the release in start(); what runs may end or begin at any time.
  for (OwnThread* t = g_first.load(std::memory_order_acquire); t; t = t->next_)
    count += t->is_of(getpid()) && t->state_.load(std::memory_order_relaxed) == State::kRuns;
  return count;
}

void OwnThread::end_all() noexcept {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
  const int pid = getpid();
  OwnThread* const first = g_first.load(std::memory_order_acquire);  // pairs with the release in start()
  for (OwnThread* t = first; t; t = t->next_) {
    // Pairs with the release of kRuns in start().
    if (!t->is_of(pid) || t->state_.load(std::memory_order_acquire) != State::kRuns) continue;
    t->must_end_.store(true, std::memory_order_relaxed);
    t->wake_();
  }
  int tries = 0;
  for (OwnThread* t = first; t; t = t->next_)
    while (t->is_of(pid) && !t->has_ended() && tries++ < 1000) nanosleep(&kPause, nullptr);
}

void OwnThread::start_again() noexcept {
  // Pairs with the release of g_first in start().
  for (OwnThread* t = g_first.load(std::memory_order_acquire); t; t = t->next_) {
    State ended = State::kEnded;
    // Pairs with the release of kEnded in has_ended(): the join is over before start() writes thread_ again.
    if (t->is_of(getpid()) && t->state_.compare_exchange_strong(ended, State::kNone, std::memory_order_acquire))
      t->start();
  }
}

}  // namespace torchprof
