// The borders that a window may have been waiting for, from the threads that passed them to the one that holds the
// window's lock: a ring, in the order in which they came. To put one in never waits.
//
// Of more than kMost at once the rest is left out. (The thread that takes them may be waiting for the GIL.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torchprof::window {

class WindowBorders {
 public:
  static constexpr uint64_t kMost = 256;
  enum class Kind : uint8_t { kProfilerStep, kOptimizerStep, kRangeBegin, kRangeEnd };
  struct Border {
    Kind kind;
    uint64_t value;  // the step, who has ended one, or the range's key
  };

  // Any thread. False: there is no room.
  bool put(Border border) noexcept {
    uint64_t at = next_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[at % kMost];
      // Pairs with take(): the slot is free again.
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == free(at)) {
        if (!next_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        slot.border = border;
        slot.turn.store(full(at), std::memory_order_release);  // pairs with take()
        // Before the lock is tried: its holder either sees this border or has let go. Pairs with has_any().
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
    if (slot.turn.load(std::memory_order_acquire) != full(taken_)) return false;  // pairs with the release in put()
    border = slot.border;
    slot.turn.store(free(taken_ + kMost), std::memory_order_release);  // pairs with the acquire in put()
    taken_ = taken_ + 1;
    return true;
  }

  // Any thread, after it has let the lock go.
  bool has_any() const noexcept {
    // Pairs with the fence in put(), and the load with its release.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t at = taken_;
    return slots_[at % kMost].turn.load(std::memory_order_acquire) == full(at);
  }

  // While there is no other thread.
  void clear() noexcept {
    taken_ = 0;
    next_.store(0, std::memory_order_relaxed);
    for (Slot& slot : slots_) slot.turn.store(0, std::memory_order_relaxed);
  }

 private:
  // Of the slot of border `at`, in its round: even where it is free, odd where it holds it.
  static constexpr uint64_t free(uint64_t at) noexcept { return at / kMost * 2; }
  static constexpr uint64_t full(uint64_t at) noexcept { return free(at) + 1; }

  struct Slot {
    std::atomic<uint64_t> turn{0};
    Border border{};
  };
  Slot slots_[kMost];
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> taken_{0};  // written by the one that takes
};

}  // namespace torchprof::window
