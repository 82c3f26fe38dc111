// A thread of our own in the program's process. It blocks every signal but SIGBUS. It has ended before the process is
// sealed (seal.h): a seccomp filter may be put on all threads at once, and a thread needs system calls to end.
//
// Objects are static and never destroyed. A forked child has no such thread until it calls start() itself.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace torchprof {

class OwnThread {
 public:
  // `body` must return soon once must_end() is true; `wake` makes it ask. `name`: at most 15 bytes.
  constexpr OwnThread(const char* name, void (*body)() noexcept, void (*wake)() noexcept) noexcept
      : name_(name), body_(body), wake_(wake) {}

  // By one thread at a time. False: no thread could be started, or the process is sealed.
  bool start() noexcept;
  // Relaxed: the flag publishes nothing. Whoever reads it only leaves a loop.
  bool must_end() const noexcept { return must_end_.load(std::memory_order_relaxed); }

  // Tells this one to end and waits for it, a second at most; by one thread at a time. True: it ran, and has ended, and
  // the kernel does not count it any more; also where it has ended by itself, or after an earlier call had waited in
  // vain. The caller must hold no lock that it needs. Before a fork: some programs count their threads after it.
  bool end() noexcept;

  // Of its processor, in ns: what does not grow does not run. 0 before the thread has begun and after it has ended. Any
  // thread.
  int64_t processor_time() const noexcept;

  // How many run in this process.
  static unsigned running() noexcept;
  // Tells all that run to end and waits for them, a second at most in all. The caller must hold no lock that one of
  // them needs.
  static void end_all() noexcept;
  // Starts those again that end_all() has ended.
  static void start_again() noexcept;

 private:
  enum class State { kNone, kRuns, kJoining, kEnded };
  bool has_ended() noexcept;
  bool is_of(int pid) const noexcept { return pid_.load(std::memory_order_relaxed) == pid; }

  const char* const name_;
  void (*const body_)() noexcept;
  void (*const wake_)() noexcept;
  std::atomic<State> state_{State::kNone};
  std::atomic<bool> must_end_{false};
  pthread_t thread_{};
  std::atomic<pid_t> tid_{0};  // written by the thread itself; relaxed: it publishes nothing
  std::atomic<int> pid_{0};    // of the process in which it runs; read while start() sets it again to the same
  bool is_listed_ = false;
  OwnThread* next_ = nullptr;
};

}  // namespace torchprof
