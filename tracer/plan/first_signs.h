// -w auto: which annotations may be in the first step of a training, where what ran before it has used the budget and
// is not recorded any more (auto_window.h). Nobody can know when that step begins. But in most programs an annotation
// comes early in it: in an optimizer's zero_grad(), where a DataLoader gives a batch, or one of the program's own. Such
// a sign opens a window for a part of what is left of a budget: an optimizer's for the half, another one for a quarter.
// If no step has ended when that is used, the sign was none: it counts again after a pause, which doubles each time. So
// a start full of annotations leaves room for the sign that comes last.
//
// Pure; no allocation; one thread at a time. Times in ns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace torchprof {

class FirstSigns {
 public:
  // `events`: the budget. `only_optimizers`: in a child at a fork, which may be a worker with annotations of its own.
  void begin(uint64_t events, bool only_optimizers) noexcept {
    *this = {};
    left_ = events;
    least_ = events / kSmallestPart;
    only_optimizers_ = only_optimizers;
  }
  // How many events the window may have that opens with this annotation; 0: it opens none. `name`: any number that
  // stands for it.
  uint64_t events(uint64_t name, bool is_optimizer, int64_t now) noexcept {
    if (only_optimizers_ && !is_optimizer) return 0;
    const uint64_t part = left_ / (is_optimizer ? 2 : 4);
    if (part == 0 || part < least_) return 0;
    size_t i = 0;
    while (i < count_ && known_[i].name != name) ++i;
    if (i < count_ ? now < known_[i].counts_from : i >= (is_optimizer ? kMost : kMostOthers)) return 0;
    if (i == count_) known_[count_++] = {name, 0, kFirstPause, 0};
    known_[i].part = part;
    return part;
  }
  // No step has ended in the window that this one opened, which had so many events. Twice its part counts at most: on a
  // busy machine it is closed late, and a later sign still needs its window.
  void was_none(uint64_t name, uint64_t events, int64_t now) noexcept {
    for (size_t i = 0; i < count_; ++i) {
      Sign& sign = known_[i];
      if (sign.name != name) continue;
      left_ -= std::min({left_, events, 2 * sign.part});
      sign.counts_from = now + sign.pause;
      sign.pause *= 2;
    }
  }

 private:
  static constexpr size_t kMost = 16, kMostOthers = 12;  // names: of all, and of those that are no optimizer's
  static constexpr uint64_t kSmallestPart = 32;
  static constexpr int64_t kFirstPause = 1'000'000'000;
  struct Sign {
    uint64_t name = 0;
    int64_t counts_from = 0;
    int64_t pause = 0;  // after the next one that is none
    uint64_t part = 0;  // events of its latest window
  };
  Sign known_[kMost];
  size_t count_ = 0;
  uint64_t left_ = 0, least_ = 0;  // events
  bool only_optimizers_ = false;
};

}  // namespace torchprof
