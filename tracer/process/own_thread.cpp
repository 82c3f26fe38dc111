#include "tracer/process/own_thread.h"

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
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto run = [](void* self) -> void* {
    static_cast<OwnThread*>(self)->body_();
    return nullptr;
  };
  const bool started = pthread_create(&thread_, nullptr, run, this) == 0;
  if (started) pthread_setname_np(thread_, name_);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return false;
  pid_ = getpid();
  state_.store(State::kRuns, std::memory_order_release);
  if (!is_listed_) {
    is_listed_ = true;
    next_ = g_first.load(std::memory_order_relaxed);
    while (!g_first.compare_exchange_weak(next_, this, std::memory_order_release)) continue;
  }
  return true;
}

// Whoever else seals at the same time may join it.
bool OwnThread::has_ended() noexcept {
  State expected = State::kRuns;
  if (!state_.compare_exchange_strong(expected, State::kJoining, std::memory_order_acquire))
    return expected != State::kJoining;
  const bool has_ended = pthread_tryjoin_np(thread_, nullptr) == 0;  // the kernel itself says that it is gone
  state_.store(has_ended ? State::kEnded : State::kRuns, std::memory_order_release);
  return has_ended;
}

void OwnThread::end_all() noexcept {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
  const int pid = getpid();
  OwnThread* const first = g_first.load(std::memory_order_acquire);
  for (OwnThread* t = first; t; t = t->next_) {
    if (t->pid_ != pid || t->state_.load(std::memory_order_acquire) != State::kRuns) continue;
    t->must_end_.store(true, std::memory_order_release);
    t->wake_();
  }
  int tries = 0;
  for (OwnThread* t = first; t; t = t->next_)
    while (t->pid_ == pid && !t->has_ended() && tries++ < 1000) nanosleep(&kPause, nullptr);
}

void OwnThread::start_again() noexcept {
  for (OwnThread* t = g_first.load(std::memory_order_acquire); t; t = t->next_) {
    State ended = State::kEnded;
    if (t->pid_ == getpid() && t->state_.compare_exchange_strong(ended, State::kNone, std::memory_order_acquire))
      t->start();
  }
}

}  // namespace torchprof
