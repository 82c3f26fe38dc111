// The recording clock. On x86-64 now() costs 10 ns with a counter that the kernel itself trusts, 25 ns with
// CLOCK_MONOTONIC.
//
// The processor's counter (TSC on x86-64, CNTVCT_EL0 on AArch64) is taken only where it is the kernel's own
// clocksource: the kernel has then checked that the counters of all cores agree and never stop. Ticks of all processes
// of one machine are comparable. The library calls choose() once; the launcher never calls now().
#pragma once

#include <ctime>

#include "tracer/processor/processor.h"
#include "tracer/spool/layout.h"

namespace torchprof::clock {

// What the processor's counter is called, as text.
inline constexpr auto& kCounterName = processor::kCounterName;

// Reads /sys once. Not for the hot path. Thread-safe, idempotent.
ClockSource choose() noexcept;

// Whether the clock is surely read without a system call. After choose().
bool needs_no_call() noexcept;

inline int64_t read_ns(clockid_t id) noexcept {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Used where no clock can be read any more: its time is always 0.
inline constexpr ClockSource kNoClock{};

inline Ticks now(ClockSource source) noexcept {
  if (source == ClockSource::kCounter) [[likely]]
    return {processor::counter()};
  if (source == kNoClock) return {};
  return {static_cast<uint64_t>(read_ns(CLOCK_MONOTONIC))};
}

// The three clocks within a few tens of nanoseconds of each other.
ClockSample sample(ClockSource source) noexcept;

// Turns ticks into CLOCK_REALTIME, from the samples of one spool.
//
// The rate comes from CLOCK_MONOTONIC over the whole span of the samples, never from the wall clock, so a wall clock
// that is set while the program runs moves nothing: one offset, that of the first sample, holds for the whole spool.
class Converter {
 public:
  Converter() = default;
  // `first` and `last`: the samples furthest apart. With less than a millisecond between them the counter's rate cannot
  // be known better than about 1e-4.
  Converter(ClockSource source, const ClockSample& first, const ClockSample& last) noexcept;
  UnixNs to_unix(Ticks t) const noexcept;

 private:
  ClockSample first_{};
  double ns_per_tick_ = 1.0;
};

}  // namespace torchprof::clock
