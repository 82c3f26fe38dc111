// The places of unusual windows in SharedPlan (window_plan.h), and what a place says. Of window_plan.cpp and
// unusual_windows.cpp alone. Pure.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "tracer/plan/window_plan.h"

namespace torchprof::places {

inline constexpr double kTypicalShare = 0.6;  // of the overhead's budget; the rest is for unusual windows
inline constexpr uint64_t kMostLate = 16;     // steps
inline constexpr double kMostOfPhase = 16;    // times its latest step, however long it is
inline constexpr int64_t kLongStep = 2;       // times the median: from there on a window may open in its midst

// The places of a reason in SharedPlan, and how many steps its windows have.
struct Share {
  WindowReason reason;
  size_t begin, end;
  uint64_t length;
};
inline constexpr Share kShares[] = {
    {WindowReason::kSlow, 0, 12, 4},
    {WindowReason::kExpected, 12, 18, 3},
    {WindowReason::kOverdue, 18, 30, 2},
    {WindowReason::kMemory, 30, SharedPlan::kPlaces, 3},
};
static_assert(std::size(kShares) == SharedPlan::kShares);
inline const Share* share_of(WindowReason reason) noexcept {
  for (const Share& share : kShares)
    if (share.reason == reason) return &share;
  return nullptr;
}

inline constexpr uint64_t kMostStep = (uint64_t{1} << 40) - 2;
constexpr uint64_t pack(uint64_t first, WindowReason reason, uint64_t score) noexcept {
  return (first + 1) << 24 | static_cast<uint64_t>(reason) << 16 | score;
}
constexpr uint64_t first_of(uint64_t place) noexcept { return (place >> 24) - 1; }
constexpr WindowReason reason_of(uint64_t place) noexcept { return static_cast<WindowReason>(place >> 16 & 0xff); }
constexpr uint64_t score_of(uint64_t place) noexcept { return place & 0xffff; }
// By how many steps a window may open too late.
constexpr uint64_t most_late(WindowReason reason) noexcept { return reason == WindowReason::kExpected ? 1 : kMostLate; }
// How unusual something is, as a multiple of what is usual, in 16 bits: a thousandth of an octave each, from 2^-16 to
// 2^48 times: the six lower bits of a double's exponent, and the upper ten of its fraction. No step is so long that it
// is as unusual as another one that is shorter. 0 times is score 0: there is none.
inline constexpr uint64_t kScoreShift = 42, kScoreBase = uint64_t{1023 - 16} << 10;
constexpr uint64_t score_from(double times) noexcept {
  if (!(times > 0)) return 0;
  const uint64_t bits = std::bit_cast<uint64_t>(times) >> kScoreShift;
  return std::clamp<uint64_t>(bits, kScoreBase + 1, kScoreBase + 0xffff) - kScoreBase;
}
constexpr double times_from(uint64_t score) noexcept {
  return score != 0 ? std::bit_cast<double>((score + kScoreBase) << kScoreShift) : 0;
}

inline void raise(std::atomic<uint64_t>& value, uint64_t to) noexcept {
  uint64_t now = value.load(std::memory_order_relaxed);
  while (now < to && !value.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
  }
}

inline bool is_unusual(WindowReason reason) noexcept { return share_of(reason) != nullptr; }

}  // namespace torchprof::places
