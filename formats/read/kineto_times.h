// Times of Kineto's JSON, in microseconds with three decimals, in whole ns.
#pragma once

#include <cstdint>
#include <string_view>

namespace torchprof::formats {

// What is no number, or beyond any possible time, becomes one that is not possible (formats/io/sum.h).
int64_t ns_of(double us);

// Microseconds as text, in ns, without rounding. A double with as many microseconds as a month has is off by a
// nanosecond, and one with those since 1970 by a hundred: slices that touch would overlap, or one lie in the other.
int64_t exact_ns(std::string_view text, double us);

}  // namespace torchprof::formats
