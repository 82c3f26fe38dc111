// A made-up program with a made-up clock, whose windows a plan decides (tracer/plan/window_plan.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>

#include "tracer/plan/window_plan.h"

namespace torchprof {

inline constexpr int64_t kStep = 10'000'000;  // ns

// The same numbers on every machine.
struct Random {
  uint64_t state = 1;
  uint64_t next() { return state = state * 6364136223846793005u + 1442695040888963407u; }  // the upper bits are random
  uint64_t below(uint64_t n) { return (next() >> 33) % n; }
};

// A program whose steps take what `ns` says, and with a window `added` more.
struct Program {
  explicit Program(WindowPlan::Budget budget = {}) : own(std::make_unique<SharedPlan>()), shared(own.get()) {
    plan.begin(budget, *shared);
  }
  Program(SharedPlan& with, WindowPlan::Budget budget = {}) : shared(&with) { plan.begin(budget, with); }

  void run(
      uint64_t steps, const std::function<int64_t(uint64_t)>& ns = [](uint64_t) { return kStep; }) {
    for (uint64_t end = step + steps; step < end;) {
      const bool was_closed = open == 0;
      const int64_t took = was_closed ? ns(step) : ns(step) + added;
      if (looks_at_long_steps && !in_start && (was_closed || reason == WindowReason::kLast)) look_at(took);
      const bool is_cut = was_closed && open != 0;
      const bool was_open = open != 0;
      now += took;
      if (was_open && !in_start) captured.insert(step);
      ++step;
      plan.step_ended(step, took, was_open && reason != WindowReason::kLast, is_cut, now);
      if (open != 0) reason = in_start ? reason : plan.reason();
      if (plan.wants_more() && open != 0) close_at = std::max(close_at, step + 3);
      if (in_start && step >= 40) {
        in_start = false;
        plan.start_is_over(now);
        open = 0;
      } else if (open != 0 && !in_start && (step >= close_at || makes_way())) {
        plan.switched(switching);
        now += switching;
        plan.closed(is_cut ? 0 : step - opened_step, now);
        open = 0;
      }
      plan.measure(windows, [this](uint32_t number) { return too_big.contains(number) ? events_too_big : events; });
      while (const uint32_t number = plan.take_unwanted(open).number) given_up.insert(number);
      for (auto kept = plan.take_left_behind(); kept.number != 0; kept = plan.take_left_behind())
        left_behind.insert(kept.first);
      if (open != 0) continue;
      const auto due = plan.due(step);
      if (due.reason == WindowReason::kNone || !can_open) continue;
      plan.switched(switching);
      now += switching;
      open = ++windows;
      reason = due.reason;
      opened_step = step;
      opened_at = now;
      close_at = step + due.length;
      plan.opened({open, due.reason, due.first, false, 0});
    }
  }
  // The thread that looks at a step while it lasts, as tracer/auto_window.cpp has it.
  void look_at(int64_t took) {
    constexpr int64_t kShortestSleep = 20'000'000, kLongestSleep = 1'000'000'000;
    const int64_t patience = plan.patience();
    const auto sleep = [&](int64_t lasted) {
      return std::clamp(std::max(patience, lasted / 16), kShortestSleep, kLongestSleep);
    };
    for (int64_t lasted = patience; lasted != 0 && lasted < took; lasted += sleep(lasted)) {
      if (!plan.wish_overdue(step, lasted, now + lasted)) continue;
      if (open != 0 && plan.turn_last_overdue(step, lasted)) {
        reason = WindowReason::kOverdue;
      } else {
        if (open != 0) plan.closed(0, now + lasted);
        open = ++windows;
        reason = WindowReason::kOverdue;
        opened_step = step;
        plan.opened({open, reason, step, false, 0});
      }
      close_at = step + 2;
      plan.lasts(step, took);
      if (events_too_big != 0 && took >= is_too_big_from) cut();
      return;
    }
  }
  // The window that is open is too big, and closes in the midst of its step.
  void cut() {
    too_big.insert(open);
    captured.insert(step);
    plan.closed(0, now);
    open = 0;
  }
  // As tracer/auto_window.cpp has it.
  bool makes_way() const { return reason == WindowReason::kLast && plan.due(step).reason != WindowReason::kLast; }
  // A window is kept that has all of the step, or that opened in its midst.
  bool keeps(uint64_t of) const {
    return std::ranges::any_of(plan.kept(), [of](const WindowPlan::Kept& k) {
      return (k.first <= of && of < k.first + k.steps) || (k.reason == WindowReason::kOverdue && k.first == of);
    });
  }
  std::set<uint64_t> kept(WindowReason which) const {
    std::set<uint64_t> first;
    for (const WindowPlan::Kept& k : plan.kept())
      if (k.reason == which) first.insert(k.first);
    return first;
  }

  std::unique_ptr<SharedPlan> own;
  SharedPlan* shared;
  WindowPlan plan;
  uint64_t step = 0, opened_step = 0, close_at = 0;
  uint32_t open = 1, windows = 1, events = 1000;
  bool in_start = true;
  int64_t added = kStep / 2, switching = 1'000;
  bool can_open = true;
  bool looks_at_long_steps = false;
  // What the windows in the midst of long steps hold, if not 0: too much, they close before these steps end.
  uint32_t events_too_big = 0;
  int64_t is_too_big_from = 0;  // ns that such a step lasts
  int64_t now = 0, opened_at = 0;
  WindowReason reason = WindowReason::kStart;
  std::set<uint64_t> captured;
  std::set<uint32_t> given_up, too_big;
  std::set<uint64_t> left_behind;  // first steps
};

}  // namespace torchprof
