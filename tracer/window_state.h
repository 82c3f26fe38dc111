// What window.cpp knows of the process's windows. Nobody else includes this.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/config/window_spec.h"
#include "tracer/plan/asked_windows.h"
#include "tracer/plan/window_borders.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/record.h"
#include "tracer/window.h"

namespace torchprof::window {

// How long a step lasts until the stacks are stated: sooner where it is long for a step.
constexpr int64_t kFirstStacks = 10'000'000'000, kEarliestStacks = 2'000'000'000;
constexpr int64_t kLongForAStep = 8;  // times the step before it

// In the order in which they were added.
class Sources {
 public:
  void add(const Source& source) noexcept {
    if (count_ < kMostSources) sources_[count_++] = source;
  }
  void open() const noexcept {
    for (size_t i = 0; i < count_; ++i) sources_[i].opened();
  }
  void close() const noexcept {
    for (size_t i = count_; i-- > 0;) sources_[i].closed();
  }
  // For how many ns after close() records of the window may still come.
  int64_t settles_after() const noexcept {
    int64_t most = 0;
    for (size_t i = 0; i < count_; ++i)
      if (sources_[i].settles_after) most = std::max(most, sources_[i].settles_after());
    return most;
  }

 private:
  Source sources_[kMostSources] = {};
  size_t count_ = 0;
};

struct State {
  WindowSpec spec;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of the rest, but for the atomics
  WindowBorders borders;
  uint64_t step = 0;  // at its begin
  Ticks begin;
  WindowReason reason{};
  int64_t closed_at = 0;    // ns, CLOCK_MONOTONIC
  Ticks left_at;            // when the child was forked in a window of the parent that it does not have; 0: it was not
  bool is_used_up = false;  // there are no more numbers of windows
  bool must_leave = false;  // the sources still have to be switched off because of that
  int64_t process_start = 0;           // ns, CLOCK_MONOTONIC
  Ticks latest;                        // of the borders that have passed
  std::atomic<uint64_t> entered{0};    // how often the range was entered
  std::atomic<uint64_t> range_key{0};  // of the range that is to keep the window open; 0: none
  uint64_t holder = 0;                 // key of the range for which the window was opened
  bool is_our_thread = false;          // that has the lock
  AskedWindows asked;
  bool is_cut = false;                 // a window was opened or closed by hand in the midst of the current step
  int64_t last_border = 0;             // ns, CLOCK_MONOTONIC: when a step ended; the start of the process before that
  int64_t last_lasted = 0;             // ns, of the step that ended then; 0: not known
  int64_t next_stacks = kFirstStacks;  // ns after last_border at which the stacks are stated, if no step ends before
  bool is_left = false;                // leave_process() was called

  // After leave_process(); the lock and the borders stay.
  void begin_anew() noexcept {
    step = 0;
    reason = {};
    left_at = {};
    is_used_up = is_cut = is_left = false;
    asked = {};
    entered.store(0, std::memory_order_relaxed);
    range_key.store(0, std::memory_order_relaxed);
    last_border = last_lasted = closed_at = 0;
    next_stacks = kFirstStacks;
  }
};

}  // namespace torchprof::window
