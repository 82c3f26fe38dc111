#include "tracer/spool/clock.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tracer/processor/processor.h"

namespace torchprof::clock {

namespace {
// Clock sources that are read in the process itself (vDSO). Source: arch/x86/kernel/{tsc,kvmclock}.c,
// drivers/clocksource/{hyperv_timer,arm_arch_timer}.c of Linux, vdso_clock_mode.
constexpr std::string_view kRead[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
constinit bool g_needs_no_call = false;
}  // namespace

bool needs_no_call() noexcept { return g_needs_no_call; }

ClockSource choose() noexcept {
  const int saved = errno;
  char name[64] = {};
  const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? ::read(fd, name, sizeof(name) - 1) : -1;
  if (fd >= 0) close(fd);
  errno = saved;
  name[strcspn(name, "\n")] = 0;
  if (n <= 0) return ClockSource::kMonotonic;
  g_needs_no_call = getauxval(AT_SYSINFO_EHDR) != 0 && std::ranges::find(kRead, name) != std::end(kRead);
  if (std::string_view(name).starts_with(processor::kCounterSource)) return ClockSource::kCounter;
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
  if (source == ClockSource::kCounter && ticks > 0 && ns > 0) ns_per_tick_ = ns / ticks;
}

UnixNs Converter::to_unix(Ticks t) const noexcept {
  const auto delta = static_cast<int64_t>(t.value - first_.ticks.value);
  const double ns = static_cast<double>(delta) * ns_per_tick_;
  // A damaged spool may say anything. The result is kept between 1970 and 36 years after 2096, so that the difference
  // of two results never overflows.
  constexpr double kFar = 0x1p60;
  const int64_t first = std::clamp<int64_t>(first_.realtime.value, 0, 4'000'000'000'000'000'000);
  return {std::max<int64_t>(0, first + static_cast<int64_t>(std::clamp(ns, -kFar, kFar)))};
}

}  // namespace torchprof::clock
