// The clock of run.json: CLOCK_REALTIME, and seconds of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "tracer/spool/clock.h"

namespace torchprof::launcher {

inline constexpr double kNsPerSecond = 1e9;

inline UnixNs wall_clock_now() { return {clock::read_ns(CLOCK_REALTIME)}; }

// 0 if the clock was set back in between.
inline double seconds_between(UnixNs since, UnixNs until) {
  return static_cast<double>(std::max<int64_t>(0, until.value - since.value)) / kNsPerSecond;
}

}  // namespace torchprof::launcher
