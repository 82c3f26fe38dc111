// CUPTI's times on one clock, even if another client gives CUPTI a clock of its own.
//
// The own clock is the one that we give CUPTI (own_clock.h), or CUPTI's default where it takes none: CLOCK_REALTIME, in
// ns (on WSL CLOCK_MONOTONIC_RAW). cuptiActivityRegisterTimestampCallback replaces it for good, also for what was
// recorded before and is converted afterwards (cupti_activity.h of 13.0). libkineto gives CUPTI the processor's
// counter, which does not count ns (libkineto/src/CuptiTimestamp.cpp, since 2024). Such times are converted by a
// straight line through two readings of both clocks: when the other clock came, and the latest. Where the other clock
// is CLOCK_REALTIME, it may be set: the line begins anew at the first reading that it misses, and what is converted
// between that moment and the reading is wrong by as much. A time belongs to the clock whose latest reading is nearer.
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

// Two clocks at the same moment, as near as can be had: a thread may lose the processor between two readings, and for
// milliseconds on a busy machine. Of a few tries it is the one that took the shortest.
struct BothClocks {
  uint64_t own = 0;
  uint64_t other = 0;
  bool is_read = false;  // false: the other clock cannot be read
};
// `read_own` gives the own clock's time, `read` the other's; false: it cannot be read.
template <class ReadOwn, class Read>
BothClocks read_both(ReadOwn&& read_own, Read&& read) noexcept {
  constexpr int kTries = 8;
  constexpr uint64_t kShort = 2000;  // two readings that nothing has come between
  BothClocks best;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < kTries && shortest > kShort; ++i) {
    uint64_t other = 0;
    const uint64_t before = read_own();
    if (!read(other)) return {};
    const uint64_t after = read_own();
    if (after < before || after - before >= shortest) continue;  // before it: the clock was set back
    shortest = after - before;
    best = {before + shortest / 2, other, true};
  }
  return best;
}

class Clock {
 public:
  // Readings of one moment by the own clock and by another client's: gets() when the other clock comes, reads() later.
  void gets(uint64_t own, uint64_t theirs) noexcept;
  void reads(uint64_t own, uint64_t theirs) noexcept;
  bool is_given() const noexcept { return is_given_; }

  // A time of either clock, on the own one.
  uint64_t own(uint64_t time) const noexcept {
    if (!is_given_ || time == 0 || distance(time, own_now_) <= distance(time, theirs_now_)) return time;
    return own_now_ + static_cast<uint64_t>(
                          static_cast<int64_t>(rate_ * static_cast<double>(static_cast<int64_t>(time - theirs_now_))));
  }

 private:
  static uint64_t distance(uint64_t a, uint64_t b) noexcept { return a < b ? b - a : a - b; }
  // Whether the line through the earlier readings misses this one by more than they explain: each may be a millisecond
  // off, where a thread lost the processor between two readings, so a line through two that are near has no direction.
  bool is_jump(uint64_t own, uint64_t theirs) const noexcept;

  bool is_given_ = false;
  uint64_t own_then_ = 0, theirs_then_ = 0;
  uint64_t own_now_ = 0, theirs_now_ = 0;
  uint64_t rate_over_ = 0;  // ns between the readings that tell the rate; 0: there was one reading
  bool is_anew_ = false;    // the line begins at a jump
  int jumps_ = 0;           // as many readings in a row, the latest among them
  double rate_ = 1;         // ns for each unit of the other clock
};

inline void Clock::gets(uint64_t own, uint64_t theirs) noexcept {
  // libkineto sets the same clock again at each session.
  if (is_given_ && theirs > theirs_then_ && distance(theirs, theirs_now_) < distance(theirs, own)) return;
  is_given_ = true;
  own_then_ = own_now_ = own;
  theirs_then_ = theirs_now_ = theirs;
  rate_ = 1;
  is_anew_ = false;
  rate_over_ = 0;
  jumps_ = 0;
}

inline bool Clock::is_jump(uint64_t own, uint64_t theirs) const noexcept {
  if (own <= own_now_ || theirs <= theirs_now_) return true;
  constexpr double kOff = 1e6;
  if (rate_over_ < 50 * static_cast<uint64_t>(kOff)) return false;
  const auto passed = static_cast<double>(own - own_now_);
  const double missed = passed - rate_ * static_cast<double>(theirs - theirs_now_);
  return (missed < 0 ? -missed : missed) > kOff + passed / 1000 + passed * kOff / static_cast<double>(rate_over_);
}

inline void Clock::reads(uint64_t own, uint64_t theirs) noexcept {
  if (!is_given_ || own <= own_now_) return;
  if (is_jump(own, theirs)) {
    // A reading that came late makes two of them. More: the rate is wrong, it was read across a jump.
    if (++jumps_ > 2 && theirs > theirs_now_) {
      rate_over_ = own - own_now_;
      rate_ = static_cast<double>(rate_over_) / static_cast<double>(theirs - theirs_now_);
    }
    is_anew_ = true;
    own_then_ = own_now_ = own;
    theirs_then_ = theirs_now_ = theirs;
    return;
  }
  jumps_ = 0;
  own_now_ = own, theirs_now_ = theirs;
  constexpr uint64_t kLongEnough = 1'000'000'000;  // for a rate that is better than the one before a jump
  if (is_anew_ && own - own_then_ < kLongEnough) return;
  rate_over_ = own - own_then_;
  rate_ = static_cast<double>(rate_over_) / static_cast<double>(theirs - theirs_then_);
}

}  // namespace torchprof::cupti
