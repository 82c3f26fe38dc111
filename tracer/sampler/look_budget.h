// What the sampler's rounds may take of a processor: one `part`th of the time, and kAtOnce of it in advance.
//
// A pause is not simply so many times as long as the last rounds. After a long pause the caches are cold, and a round
// takes up to twenty times as long (measured on a shared machine: 60 to 130 us after 20 ms, 350 to 2,000 us after
// 200 ms). The first rounds, which meet all functions, would bring long pauses, and long pauses would keep themselves.
//
// Times in ns: `now` of a clock that goes on, `used` of the clock of the thread that makes the rounds. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace torchprof::sampler {

class LookBudget {
 public:
  static constexpr int64_t kAtOnce = 50'000'000;

  // The thread begins.
  void begin(int64_t now, int64_t used) noexcept { now_ = now, used_ = used; }

  // A round has ended. Gives `pause`, or a longer one where rounds have taken more than they may: each time an eighth
  // of what is owed is waited for.
  int64_t pause_after_round(int64_t now, int64_t used, int64_t pause, int64_t part) noexcept {
    left_ = std::min(kAtOnce, left_ + (now - now_) / part - (used - used_));
    begin(now, used);
    return std::max(pause, -left_ * part / 8);
  }

 private:
  int64_t left_ = kAtOnce;
  int64_t now_ = 0, used_ = 0;
};

}  // namespace torchprof::sampler
