// The durations of the latest steps: which one is far from the others. In ns; any unit does.
//
// Median and median deviation of the last kKept durations, made anew after each kEvery of them, so that taking one
// costs next to nothing. A few slow steps move neither. Pure; one thread at a time; no allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tracer/spool/slow_step.h"

namespace torchprof {

class StepTimes {
 public:
  static constexpr size_t kKept = 128;
  static constexpr size_t kEvery = 16;
  static constexpr size_t kFewest = 16;  // before that there is no median

  void add(int64_t duration) noexcept {
    latest_[count_ % kKept] = duration;
    ++count_;
    if (count_ % kEvery == 0) summarize();
  }
  bool is_known() const noexcept { return count_ >= kFewest; }
  int64_t median() const noexcept { return median_; }
  int64_t deviation() const noexcept { return deviation_; }  // the median one
  // Above it a step is far slower than the others.
  int64_t slow() const noexcept { return slow_step(median_, deviation_); }

 private:
  void summarize() noexcept {
    int64_t sorted[kKept] = {};
    const size_t n = std::min(count_, kKept);
    std::copy_n(latest_, n, sorted);
    median_ = middle(sorted, n);
    for (size_t i = 0; i < n; ++i) sorted[i] = sorted[i] > median_ ? sorted[i] - median_ : median_ - sorted[i];
    deviation_ = middle(sorted, n);
  }
  static int64_t middle(int64_t* values, size_t n) noexcept {
    std::nth_element(values, values + n / 2, values + n);
    return values[n / 2];
  }

  int64_t latest_[kKept] = {};
  size_t count_ = 0;
  int64_t median_ = 0;
  int64_t deviation_ = 0;
};

}  // namespace torchprof
