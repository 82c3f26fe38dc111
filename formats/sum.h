// Sums and differences of times that a file gives. Those of a damaged or hostile file may be anything: what would
// overflow stays at the largest or smallest number that there is.
#pragma once

#include <cstdint>
#include <limits>

namespace torchprof::formats {

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
