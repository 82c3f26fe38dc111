// Where the steps of the program end: with its own marks "ProfilerStep#N" where it makes any, otherwise with its
// optimizers' steps (spool/step_counter.h), also again once its torch.profiler has ended. With the lock of the window's
// changes (window.cpp).
#pragma once

#include <cstdint>
#include <utility>

#include "tracer/plan/window_borders.h"
#include "tracer/spool/step_counter.h"

namespace torchprof::window {

class StepBorders {
 public:
  using Border = WindowBorders::Border;
  using Listener = void (*)(uint64_t step, const Border& border) noexcept;

  // `at_step`: so many steps have ended by now. `step_was_at`: the same of a step before the one that ends now, which
  // turns out to have ended then.
  constexpr StepBorders(Listener at_step, Listener step_was_at) noexcept
      : at_step_(at_step), step_was_at_(step_was_at) {}

  uint64_t current() const noexcept { return steps_.current(); }  // steps that have ended

  void mark_began(const Border& border) noexcept {
    // Mostly the end of the mark before has said so.
    if (std::exchange(has_mark_ended_, false) && steps_.current() == border.value) return;
    program_says(border.value, border);
  }
  void mark_ended(const Border& border) noexcept {
    has_mark_ended_ = true;
    program_says(border.value + 1, border);
  }
  // `may_take_over`: the program's own marks may have come to an end.
  void optimizer_ended(const Border& border, bool may_take_over) noexcept {
    if (!has_marks_ || (may_take_over && takes_over())) count(border);
  }
  // In a child that counts its own steps.
  void forget() noexcept {
    steps_.start_at(0);
    has_open_border_ = has_marks_ = has_mark_ended_ = false;
  }

 private:
  // So many steps have ended, by the program's own marks.
  void program_says(uint64_t step, const Border& border) noexcept {
    has_marks_ = true;
    since_mark_ = 0;
    has_open_border_ = false;
    steps_.start_at(step);
    at_step_(step, border);
  }
  // The program's torch.profiler has ended, and its steps go on.
  bool takes_over() noexcept {
    constexpr uint32_t kMostBetween = 64;  // an iteration may have several optimizers' steps, or accumulate gradients
    if (++since_mark_ < kMostBetween) return false;
    steps_.start_at(steps_.current());
    has_marks_ = has_open_border_ = false;
    return true;
  }
  // The border comes after the last optimizer of the iteration. Where the next iteration begins without one of them, or
  // a new optimizer turns out to have ended a step of its own, it is known late.
  void count(const Border& border) noexcept {
    const uint64_t before = steps_.current();
    switch (steps_.ended(border.value, border.thread, border.ns, border.is_first)) {
      case StepCounter::Ended::kBehind:
        return;
      case StepCounter::Ended::kPart:
        end_before_ = std::exchange(step_end_, border);
        break;
      case StepCounter::Ended::kNew:
        if (has_open_border_) step_was_at_(before, step_end_);
        step_end_ = border;
        has_open_border_ = true;
        break;
      case StepCounter::Ended::kSplit:
        if (has_open_border_) step_was_at_(before, end_before_);
        step_was_at_(before + 1, step_end_);
        step_end_ = border;
        has_open_border_ = true;
        break;
    }
    if (!has_open_border_ || !steps_.is_complete()) return;
    has_open_border_ = false;
    at_step_(steps_.current(), border);
  }

  const Listener at_step_, step_was_at_;
  StepCounter steps_{};
  Border step_end_{};             // the last end of an optimizer's step that is a part of the current step
  Border end_before_{};           // the one before that
  bool has_open_border_ = false;  // the current step has ended for some optimizers, but not for all
  bool has_mark_ended_ = false;   // the current step is over because its mark has ended
  bool has_marks_ = false;        // the program itself says the number of a step
  uint32_t since_mark_ = 0;       // steps of optimizers since it did so last
};

}  // namespace torchprof::window
