// -w auto, in the process: takes the time of every step, and opens, closes and gives up windows as the plan says
// (plan/window_plan.h). What it is told comes from window.cpp, with the lock of its changes held, if it does not say
// otherwise.
//
// The beginning: until the budget of events is used, everything is recorded, and nothing is different from `-w all` but
// that the times of steps are kept; no thread is started. A process that ends before that has no windows at all.
//
// However much runs before the first step, half of the budget is left for the steps: the beginning goes on until they
// have used it, and there are at least three. Where the budget is used before the first step has ended, the rest of the
// start is not recorded, but for windows by time, which show what it does. The first steps are a second window of the
// beginning: nobody can know when the first begins, but an annotation is a sign of it (plan/first_signs.h). If no step
// ends in that window, it is closed, and the next sign opens one; at the latest it opens when the first step has ended.
// The first step counts as in part then. Until it has ended, an annotation costs a lock that is free.
//
// A child after fork goes on with its own budget if its parent still recorded everything; otherwise it begins without a
// window, and has some by time until it has steps of its own.
#pragma once

#include <cstdint>

#include "tracer/config/config.h"
#include "tracer/plan/asked_windows.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/record.h"

namespace torchprof::window {

// How the window is opened and closed.
struct Shutter {
  bool (*open)(uint64_t step, WindowReason reason) noexcept;  // false: it cannot be opened now
  void (*close)() noexcept;
  bool (*is_open)() noexcept;
  uint32_t (*number)() noexcept;
  bool (*has_gaps)() noexcept;  // after one has closed the next one cannot be opened for a while
  // The budget of events is used: a thread has to call tick() from now on. On the thread that records, in the midst of
  // an event, without the lock.
  void (*needs_thread)() noexcept;
  void (*wakes_thread)() noexcept;  // it is to call tick() at once; likewise
};

namespace auto_window {

// Once, before anything is recorded.
void start(const Config& config, const Shutter& shutter, const char* directory) noexcept;
void after_fork_in_child() noexcept;
// A step has ended at this time, `ns` as CLOCK_MONOTONIC has it: `step` steps have ended by now. It may come late where
// another thread had the lock. `thread`: pthread_self() of the one whose step it is. `asked`: what is asked for from
// outside, which comes before what the plan wants, and does not count against its budget.
void at_step(uint64_t step, Ticks at, int64_t ns, uint64_t thread, AskedNow asked) noexcept;
// The same of an earlier step, at whose end that was not known. at_step() follows when the step after it has ended.
void step_was_at(uint64_t step, Ticks at, int64_t ns) noexcept;
// Any thread, without the lock: at_sign() is to be called.
bool waits_for_first() noexcept;
// An annotation has begun, which may be in the first step. `name`: a hash; `is_optimizer`: torch's, of an optimizer.
void at_sign(uint64_t name, bool is_optimizer) noexcept;
// What the time demands. Returns milliseconds until it wants to be called again.
int tick() noexcept;
// By hand, in the midst of a step. False: it cannot be opened now.
bool ask(bool opens) noexcept;
// A window is open that also shows what is asked for by hand.
bool shows() noexcept;
// Any thread, without the lock: everything is recorded so far.
bool is_whole() noexcept;

}  // namespace auto_window
}  // namespace torchprof::window
