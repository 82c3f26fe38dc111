// CUPTI's times, of one clock however often another client gives CUPTI a clock of his own.
//
// By itself CUPTI counts CLOCK_REALTIME (WSL: CLOCK_MONOTONIC_RAW) in ns. cuptiActivityRegisterTimestampCallback puts
// another one in its place for good, also for what was recorded before and is converted after (cupti_activity.h
// of 13.0). libkineto gives it the processor's counter, which does not count ns (libkineto/src/CuptiTimestamp.cpp,
// since 2024). Its times are converted by a straight line through what both clocks said when it came and what they say
// now; a time belongs to the clock that it is nearer to.
//
// Times in ns; not locked.
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
  // Two readings of the same moment, CUPTI's first clock and another client's: when that one came, and since.
  // `behind`: CLOCK_REALTIME less the own clock.
  void gets(uint64_t own, uint64_t theirs, uint64_t behind) noexcept;
  void reads(uint64_t realtime, uint64_t theirs) noexcept;
  bool is_given() const noexcept { return is_given_; }
  uint64_t now() const noexcept { return realtime_ns() - behind_; }  // where it was given one

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
  double rate_ = 1;  // ns of one of theirs
};

inline void Clock::gets(uint64_t own, uint64_t theirs, uint64_t behind) noexcept {
  // libkineto gives it the same one at each session.
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
