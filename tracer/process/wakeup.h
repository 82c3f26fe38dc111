// What one thread of ours sleeps on until another wakes it or a time comes. A wakeup that comes before the sleep is
// kept; several are one.
//
// Instead of a semaphore, whose wait by CLOCK_MONOTONIC (sem_clockwait) is newer than the oldest libc of a release.
#pragma once

#include <cstdint>

#include <atomic>

namespace torchprof {

class Wakeup {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  // From any thread and any signal handler. A system call only where a thread sleeps; errno stays.
  void wake() noexcept;
  // Until woken, or until CLOCK_MONOTONIC says `until_ns`. By one thread. May return early: look whether there is
  // something to do.
  void sleep(uint64_t until_ns) noexcept;

 private:
  enum : uint32_t { kNone, kSleeps, kWoken };
  std::atomic<uint32_t> state_{kNone};
};

}  // namespace torchprof
