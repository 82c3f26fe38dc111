// A thread of ours in the program's process. It blocks every signal, and has ended before the process is sealed
// (seal.h): a filter that comes upon all threads at once comes upon it too, and to end takes system calls.
//
// One is static, and not destroyed. A forked child has none until it calls start() itself.
#pragma once

#include <pthread.h>

#include <atomic>

namespace torchprof {

class OwnThread {
 public:
  // `body` returns soon once must_end() says so; `wake` brings it to ask. `name`: at most 15 bytes.
  constexpr OwnThread(const char* name, void (*body)() noexcept, void (*wake)() noexcept) noexcept
      : name_(name), body_(body), wake_(wake) {}

  // By one thread at a time. False: none could be had, or the process is sealed.
  bool start() noexcept;
  bool must_end() const noexcept { return must_end_.load(std::memory_order_acquire); }

  // All that run are told to end, and waited for, a second at most in all. No lock may be held that one of them needs.
  static void end_all() noexcept;
  // Those that were ended by it.
  static void start_again() noexcept;

 private:
  enum class State { kNone, kRuns, kJoining, kEnded };
  bool has_ended() noexcept;

  const char* const name_;
  void (*const body_)() noexcept;
  void (*const wake_)() noexcept;
  std::atomic<State> state_{State::kNone};
  std::atomic<bool> must_end_{false};
  pthread_t thread_{};
  int pid_ = 0;  // where it runs
  bool is_listed_ = false;
  OwnThread* next_ = nullptr;
};

}  // namespace torchprof
