// The windows of steps that were asked for from outside and are not over: those of RUN/spool/control
// (spool/control_file.h), and the one that `torchprof ctl start` opens. `step` is the number of steps that have ended,
// and thus the one that begins. Pure; one thread at a time; no allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace torchprof::window {

// What holds at the begin of a step.
struct AskedNow {
  static constexpr uint64_t kByHand = UINT64_MAX;  // until `stop`
  uint64_t until = 0;                              // the window ends before this step; 0: none is asked for
  uint64_t next = UINT64_MAX;                      // where the next one begins

  // Whether the next one begins within so many ns, with steps as long as this one, or with the next step.
  bool is_near(uint64_t step, int64_t lasted, int64_t within) const noexcept {
    if (next == UINT64_MAX) return false;
    const uint64_t left = next - step;
    return left <= 1 || left < static_cast<uint64_t>(within / std::max<int64_t>(1, lasted));
  }
};

class AskedWindows {
 public:
  static constexpr size_t kMost = 8;
  static constexpr int64_t kLongestWait = 2'000'000'000;  // ns, of a start for a step to begin
  enum class Taken : uint8_t { kTaken, kLate, kFull };

  // Steps first to last. The same request again replaces it. A process that has made no step yet, and perhaps never
  // will, forgets the oldest one for it.
  Taken take(uint64_t id, uint64_t first, uint64_t last, uint64_t step) noexcept {
    drop(id);
    remove([step](const Asked& a) { return a.end <= step; });
    if (first <= step) return Taken::kLate;
    if (count_ == kMost && step == 0) drop(asked_[0].id);
    if (count_ == kMost) return Taken::kFull;
    asked_[count_++] = {id, first, last + 1};
    return Taken::kTaken;
  }
  void drop(uint64_t id) noexcept {
    remove([id](const Asked& a) { return a.id == id; });
  }
  // Until stop() or forget_start(); `now` in ns, CLOCK_MONOTONIC.
  void start(int64_t now) noexcept {
    if (started_at_ == 0) started_at_ = now;
  }
  // Whether the window that was started is to open when the next step begins, and not at once: the program makes steps,
  // and the last one ended not long ago, measured by how `long_for_a_step` is; what lasts longer may be a hang.
  bool start_waits(int64_t now, int64_t last_end, int64_t long_for_a_step) const noexcept {
    if (started_at_ == 0 || long_for_a_step == 0 || now - started_at_ >= kLongestWait) return false;
    return now - last_end < std::max(long_for_a_step, kLongestWait);
  }
  // The window that was started is open and ends by itself, or is not to be opened any more.
  void forget_start() noexcept { started_at_ = 0; }
  // Also ends those of steps that hold this one.
  void stop(uint64_t step) noexcept {
    started_at_ = 0;
    remove([step](const Asked& a) { return a.first <= step; });
  }

  AskedNow at(uint64_t step) const noexcept {
    AskedNow now;
    if (count_ == 0 && started_at_ == 0) return now;
    for (size_t i = 0; i < count_; ++i) {
      if (asked_[i].first > step) now.next = std::min(now.next, asked_[i].first);
      if (asked_[i].first <= step && asked_[i].end > step) now.until = std::max(now.until, asked_[i].end);
    }
    if (started_at_ != 0) now.until = AskedNow::kByHand;
    return now;
  }

 private:
  struct Asked {
    uint64_t id = 0;
    uint64_t first = 0;
    uint64_t end = 0;
  };
  template <class Is>
  void remove(Is is) noexcept {
    count_ = static_cast<size_t>(std::remove_if(asked_, asked_ + count_, is) - asked_);
  }

  Asked asked_[kMost];
  size_t count_ = 0;
  int64_t started_at_ = 0;  // 0: it was not
};

}  // namespace torchprof::window
