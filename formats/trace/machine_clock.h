// The clocks of a run's machines, and Unix time as one of them has it put to that of another.
//
// A machine is one boot of one host: processes with its name, whose counters and clocks agree. Its clock is corrected
// only where somebody has found out by how much (formats/ranks/align.h); load() itself takes each clock as it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/io/sum.h"
#include "tracer/spool/clock.h"

namespace torchprof::formats {

// By how much a clock is ahead, at some of its times. Linear between two of them, and before and after all of them.
struct ClockCorrection {
  struct Point {
    int64_t at;     // Unix time in ns, as the clock itself has it
    int64_t ahead;  // ns
  };
  std::vector<Point> points{};  // by time, each another one; no clock runs twice as fast as another

  int64_t ahead_at(int64_t time) const {
    if (points.size() < 2) return points.empty() ? 0 : points.front().ahead;
    const auto after = std::ranges::lower_bound(points, time, {}, &Point::at);
    const auto second = std::clamp<ptrdiff_t>(after - points.begin(), 1, std::ssize(points) - 1);
    const Point &a = points[static_cast<size_t>(second - 1)], &b = points[static_cast<size_t>(second)];
    const double slope = static_cast<double>(b.ahead - a.ahead) / static_cast<double>(b.at - a.at);
    return a.ahead + static_cast<int64_t>(static_cast<double>(difference(time, a.at)) * slope);
  }
};

struct Machine {
  std::string host{};
  uint32_t reference = 0;  // in Trace::machines: to whose clock its times are put; itself: to its own
  std::shared_ptr<const ClockCorrection> correction{};  // none: it is its own reference
  // Of a clock that is corrected: how far it was ahead of the reference when its processes began, how much faster it
  // runs on average, how far a corrected time is off at most, and the number of collectives from which that follows.
  int64_t ahead_ns = 0;
  double drift_ppm = 0;
  int64_t error_ns = 0;
  uint64_t collectives = 0;
};

class ProcessClock {
 public:
  ProcessClock() = default;
  explicit ProcessClock(const clock::Converter& own) : own_(own) {}
  ProcessClock(const clock::Converter& own, std::shared_ptr<const ClockCorrection> correction)
      : own_(own), correction_(std::move(correction)) {}

  UnixNs to_unix(Ticks t) const { return {corrected(own_.to_unix(t).value)}; }
  // A time of the machine's own clock.
  int64_t corrected(int64_t unix_ns) const {
    if (!correction_) [[likely]]
      return unix_ns;
    return std::clamp<int64_t>(difference(unix_ns, correction_->ahead_at(unix_ns)), 0, kLatest);
  }
  const std::shared_ptr<const ClockCorrection>& correction() const { return correction_; }

 private:
  clock::Converter own_{};
  std::shared_ptr<const ClockCorrection> correction_{};
};

}  // namespace torchprof::formats
