// When a step is far slower than the others: the rule by which the recorder opens windows (tracer/plan/step_times.h),
// and by which reports name unusual steps (formats/analysis/run_steps.h). In ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace torchprof {

// A step that takes longer is slow: half as long again as the median, beyond what the steps differ by anyway (six
// deviations, as those of a normal distribution, by the median deviation), and by more than a clock's or a scheduler's
// whim. Neither may be longer than a century.
inline int64_t slow_step(int64_t median, int64_t median_deviation) noexcept {
  constexpr int64_t kWhim = 200'000;
  const auto usual = static_cast<int64_t>(6 * 1.4826 * static_cast<double>(median_deviation));
  return median + std::max({median / 2, usual, kWhim});
}

}  // namespace torchprof
