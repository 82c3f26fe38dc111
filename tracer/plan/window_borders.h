// A ring of the borders (ends of steps, begins and ends of ranges, signs of the first step) that threads have come to,
// in their order, for the thread that holds the window's lock. put() never waits.
//
// If there are more than kMost at once, the rest is dropped. (The thread that takes them may be waiting for the GIL.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/spool/ids.h"

namespace torchprof::window {

class WindowBorders {
 public:
  static constexpr uint64_t kMost = 256;
  enum class Kind : uint8_t {
    kProfilerStep,
    kProfilerStepEnd,
    kOptimizerStep,
    kRangeBegin,
    kRangeEnd,
    kSign,
    kOptimizerSign
  };
  struct Border {
    Kind kind;
    uint64_t value;  // the step, the optimizer that has ended one, the range's key, or the hash of a sign's name
    Ticks at;
    int64_t ns = 0;         // the same by CLOCK_MONOTONIC
    uint64_t thread = 0;    // that came to it; any number
    bool is_first = false;  // of the optimizer's steps
  };

  // Any thread. False: there is no room.
  bool put(Border border) noexcept {
    uint64_t at = next_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[at % kMost];
      // Pairs with the release in take(): the border that was in the slot has been read.
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == free(at)) {
        if (!next_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        slot.border = border;
        slot.turn.store(full(at), std::memory_order_release);  // pairs with take() and has_any(): the border is written
        // Pairs with the fence in has_any(). The caller tries the lock after this: its holder sees the border, or has
        // let go by then.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return true;
      }
      if (turn < free(at)) return false;
      at = next_.load(std::memory_order_relaxed);
    }
  }

  // One thread at a time. False: there is none.
  bool take(Border& border) noexcept {
    Slot& slot = slots_[taken_ % kMost];
    // Pairs with the release in put(): the border is written.
    if (slot.turn.load(std::memory_order_acquire) != full(taken_)) return false;  // pairs with the release in put()
    border = slot.border;
    slot.turn.store(free(taken_ + kMost),
                    std::memory_order_release);  // pairs with the acquire in put()  // pairs with the acquire in put()
    taken_ = taken_ + 1;
    return true;
  }

  // Any thread, after it has let the lock go.
  bool has_any() const noexcept {
    // Pairs with the fence in put(): this thread unlocks and then looks, the other puts and then tries the lock. At
    // least one of them sees the other.
    // Pairs with the fence in put(), and the load with its release.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t at = taken_;
    return slots_[at % kMost].turn.load(std::memory_order_acquire) == full(at);  // pairs with the release in put()
  }

  // While there is no other thread.
  void clear() noexcept {
    taken_ = 0;
    next_.store(0, std::memory_order_relaxed);
    for (Slot& slot : slots_) slot.turn.store(0, std::memory_order_relaxed);
  }

 private:
  // Values of Slot::turn for border `at`, in its round of the ring: even if the slot is free for it, odd if it is
  // there.
  static constexpr uint64_t free(uint64_t at) noexcept { return at / kMost * 2; }
  static constexpr uint64_t full(uint64_t at) noexcept { return free(at) + 1; }

  struct Slot {
    std::atomic<uint64_t> turn{0};
    Border border{};
  };
  Slot slots_[kMost];
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> taken_{0};  // only written by the thread that takes
};

}  // namespace torchprof::window
