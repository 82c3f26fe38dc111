// What auto_window.cpp knows of the run, of its beginning, and of the window that is open. With the lock of the
// window's changes, but for the atomics. Times in ns of CLOCK_MONOTONIC; steps as in plan/window_plan.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "tracer/auto_window.h"
#include "tracer/plan/first_signs.h"
#include "tracer/plan/window_plan.h"

namespace torchprof::window::auto_window {

inline constexpr uint64_t kForever = UINT64_MAX;

struct AutoState {
  WindowPlan plan;
  Shutter shutter{};
  const char* directory = "";
  uint64_t budget = 0;
  std::atomic<bool> is_whole{true};
  std::atomic<bool> needs_thread{false};
  bool has_joined = false;
  bool is_child = false;      // at a fork, when the parent did not record
  int64_t process_began = 0;  // ns, CLOCK_MONOTONIC, as all times here
  int64_t phase_began = 0;
  int64_t last_border = 0;    // 0: no step has ended
  int64_t last_duration = 0;  // of the last step
  int64_t last_sample = 0;
  uint64_t limit = 0;   // events at which the beginning may end
  int64_t used_at = 0;  // when they were there; 0: they are not yet
  bool has_steps = false;
  std::atomic<bool> waits_for_first{false};  // for a sign of the first step
  bool is_by_sign = false;                   // the window that is open, or was last, was opened by one
  uint64_t sign = 0;                         // by this one
  bool came_again = false;                   // which has come again since, and no step has ended
  uint64_t sign_events = 0;                  // that the window may have
  FirstSigns signs;
  bool wants_first = false;    // the first steps come after the beginning, and are still to be recorded
  uint64_t first_step = 0;     // of those in the beginning
  uint64_t first_border = 0;   // step
  uint64_t before_border = 0;  // events
  uint64_t step = 0;
  bool was_open = true;       // for some of the current step
  bool is_cut = false;        // a window opened or closed in the midst of the current step
  bool was_last = false;      // the current step began in a window of the last steps
  bool is_asked_for = false;  // a window that could not be opened at once
  int64_t switching = 0;      // what closing and opening windows took at the begin of the current step
  // The window that is open, or was last.
  WindowReason reason = WindowReason::kStart;
  WindowReason opened_as = WindowReason::kStart;  // what `reason` was when it was opened
  int64_t opened_at = 0;
  uint64_t opened_step = 0;
  uint64_t close_at = kForever;  // step
  uint64_t close_at_most = kForever;
  double goes_on_for = 0;            // how slow the step was for which it goes on, times the median; 0: it does not
  uint64_t overdue_step = kForever;  // the last one that had a window in its midst
  int64_t close_by = 0;              // time; 0: none
};

}  // namespace torchprof::window::auto_window
