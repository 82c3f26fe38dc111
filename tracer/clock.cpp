#include "tracer/clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace torchprof::clock {

ClockSource choose() noexcept {
#if defined(__x86_64__)
  const int saved = errno;
  char name[16] = {};
  const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t n = ::read(fd, name, sizeof(name) - 1);
    close(fd);
    if (n > 0 && strncmp(name, "tsc", 3) == 0) {
      errno = saved;
      return ClockSource::kTsc;
    }
  }
  errno = saved;
#endif
  return ClockSource::kMonotonic;
}

ClockSample sample(ClockSource source) noexcept {
  // The tightest of three tries: a preemption between the reads would tie the clocks together wrongly.
  ClockSample best{};
  uint64_t best_width = ~uint64_t{0};
  for (int i = 0; i < 3; ++i) {
    ClockSample s;
    const Ticks before = now(source);
    s.monotonic = read_ns(CLOCK_MONOTONIC);
    s.realtime = {read_ns(CLOCK_REALTIME)};
    const Ticks after = now(source);
    const uint64_t width = after.value - before.value;
    s.ticks = {before.value + width / 2};
    if (width < best_width) best = s, best_width = width;
  }
  return best;
}

Converter::Converter(ClockSource source, const ClockSample& first, const ClockSample& last) noexcept : first_(first) {
  const auto ticks = static_cast<double>(last.ticks.value - first.ticks.value);
  const auto ns = static_cast<double>(last.monotonic - first.monotonic);
  if (source == ClockSource::kTsc && ticks > 0 && ns > 0) ns_per_tick_ = ns / ticks;
}

UnixNs Converter::to_unix(Ticks t) const noexcept {
  const auto delta = static_cast<int64_t>(t.value - first_.ticks.value);
  const double ns = static_cast<double>(delta) * ns_per_tick_;
  // What a damaged spool says may be anything. Differences of what is returned never overflow.
  constexpr double kFar = 0x1p61;
  const int64_t first = std::clamp<int64_t>(first_.realtime.value, 0, int64_t{1} << 61);
  if (!(ns > -kFar && ns < kFar)) [[unlikely]]
    return {ns < 0 ? 0 : int64_t{1} << 62};
  return {std::max<int64_t>(0, first + static_cast<int64_t>(ns))};
}

}  // namespace torchprof::clock
