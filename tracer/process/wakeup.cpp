#include "tracer/process/wakeup.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tracer/process/diag.h"

namespace torchprof {

void Wakeup::wake() noexcept {
  // Pairs with the acquire in sleep(): what the waker has written is seen.
  if (state_.exchange(kWoken, std::memory_order_release) != kSleeps) return;
  const KeepErrno keep;
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Wakeup::sleep(uint64_t until_ns) noexcept {
  const KeepErrno keep;
  uint32_t state = kNone;
  // Relaxed: nothing is read because of it. The kernel compares the state again before it lets the thread sleep.
  if (state_.compare_exchange_strong(state, kSleeps, std::memory_order_relaxed)) {
    const timespec until = {static_cast<time_t>(until_ns / 1'000'000'000), static_cast<long>(until_ns % 1'000'000'000)};
    // Of the futex calls this one takes an absolute time, of CLOCK_MONOTONIC.
    syscall(SYS_futex, &state_, FUTEX_WAIT_BITSET_PRIVATE, kSleeps, until_ns == kNever ? nullptr : &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
  }
  state_.exchange(kNone, std::memory_order_acquire);  // pairs with the release in wake()
}

}  // namespace torchprof
