// Times in a damaged or hostile file may be anything. When they are read they are clamped to a range in which no
// difference of two overflows (to the one below; the ticks of spools in tracer/spool/clock.cpp). A sum of many that
// would overflow stays at the largest or smallest number that there is.
#pragma once

#include <cstdint>
#include <limits>

namespace torchprof::formats {

// Unix times in ns, from 36 years before 1970, for files whose times count from elsewhere, to the year 2096.
inline constexpr int64_t kEarliest = -(int64_t{1} << 60), kLatest = 4'000'000'000'000'000'000;

constexpr bool is_possible(int64_t begin, int64_t end) { return kEarliest <= begin && begin <= end && end <= kLatest; }

constexpr int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  return b < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

constexpr int64_t difference(int64_t a, int64_t b) {
  int64_t result = 0;
  if (!__builtin_sub_overflow(a, b, &result)) return result;
  return b > 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

constexpr void add_to(int64_t& total, int64_t ns) { total = sum(total, ns); }

}  // namespace torchprof::formats
