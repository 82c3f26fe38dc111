// CUPTI's times on one clock, even if another client gives CUPTI a clock of its own.
//
// By default CUPTI uses CLOCK_REALTIME (on WSL CLOCK_MONOTONIC_RAW), in ns. cuptiActivityRegisterTimestampCallback
// replaces it for good, also for what was recorded before and is converted afterwards (cupti_activity.h of 13.0).
// libkineto gives CUPTI the processor's counter, which does not count ns (libkineto/src/CuptiTimestamp.cpp, since
// 2024). Such times are converted by a straight line through two readings of both clocks: when the other clock came,
// and the latest. A time belongs to the clock whose latest reading is nearer.
//
// Times in ns; no locking.
#pragma once

#include <cstdint>
#include <ctime>

namespace torchprof::cupti {

inline uint64_t realtime_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// CLOCK_REALTIME and another clock at the same moment, as near as can be had: a thread may lose the processor between
// two readings, and for milliseconds on a busy machine. Of a few tries it is the one that took the shortest.
struct BothClocks {
  uint64_t realtime = 0;
  uint64_t other = 0;
  bool is_read = false;  // false: the other clock cannot be read
};
// `read` gives the other clock's time; false: it cannot be read.
template <class Read>
BothClocks read_both(Read&& read) noexcept {
  constexpr int kTries = 8;
  constexpr uint64_t kShort = 2000;  // two readings that nothing has come between
  BothClocks best;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < kTries && shortest > kShort; ++i) {
    uint64_t other = 0;
    const uint64_t before = realtime_ns();
    if (!read(other)) return {};
    const uint64_t after = realtime_ns();
    if (after < before || after - before >= shortest) continue;  // before it: the clock was set back
    shortest = after - before;
    best = {before + shortest / 2, other, true};
  }
  return best;
}

class Clock {
 public:
  // Readings of one moment by CUPTI's own clock and by another client's: gets() when the other clock comes, reads()
  // later. `behind`: CLOCK_REALTIME minus the own clock.
  void gets(uint64_t own, uint64_t theirs, uint64_t behind) noexcept;
  void reads(uint64_t realtime, uint64_t theirs) noexcept;
  bool is_given() const noexcept { return is_given_; }
  uint64_t now() const noexcept { return realtime_ns() - behind_; }  // only if is_given()

  // A time of either clock, on CUPTI's own.
  uint64_t own(uint64_t time) const noexcept {
    if (!is_given_ || time == 0 || distance(time, own_now_) <= distance(time, theirs_now_)) return time;
    return own_now_ + static_cast<uint64_t>(
                          static_cast<int64_t>(rate_ * static_cast<double>(static_cast<int64_t>(time - theirs_now_))));
  }

 private:
  static uint64_t distance(uint64_t a, uint64_t b) noexcept { return a < b ? b - a : a - b; }

  bool is_given_ = false;
  uint64_t behind_ = 0;
  uint64_t own_then_ = 0, theirs_then_ = 0;
  uint64_t own_now_ = 0, theirs_now_ = 0;
  double rate_ = 1;  // ns for each unit of the other clock
};

inline void Clock::gets(uint64_t own, uint64_t theirs, uint64_t behind) noexcept {
  // libkineto sets the same clock again at each session.
  if (is_given_ && theirs > theirs_then_ && distance(theirs, theirs_now_) < distance(theirs, own)) return;
  is_given_ = true;
  behind_ = behind;
  own_then_ = own_now_ = own;
  theirs_then_ = theirs_now_ = theirs;
  rate_ = 1;
}

inline void Clock::reads(uint64_t realtime, uint64_t theirs) noexcept {
  const uint64_t own = realtime - behind_;
  if (!is_given_ || own <= own_then_ || theirs <= theirs_then_) return;
  own_now_ = own, theirs_now_ = theirs;
  rate_ = static_cast<double>(own - own_then_) / static_cast<double>(theirs - theirs_then_);
}

}  // namespace torchprof::cupti
