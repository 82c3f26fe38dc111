// Counts the steps of a training, by the rule of torch's KinetoStepTracker (torch/autograd/profiler.py): each requester
// (an optimizer) has a count, and the largest is the step, so two optimizers in one iteration make one step. The first
// step of a new requester completes the current step, as in the first iteration of two optimizers. If its second step
// comes right after, its first was a step of its own, and its count goes up by two.
//
// Requesters are any numbers. There are kMost places; if there are more requesters, the others share the last one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace torchprof {

class StepCounter {
 public:
  // The count of the requester whose step has ended. Above `current()`: a new step. Equal: it completes the current
  // one.
  uint64_t ended(uint64_t requester) noexcept {
    Requester& r = find(requester);
    const bool is_new = r.count == 0;
    if (is_new)
      r.count = std::max<uint64_t>(1, current_);
    else
      r.count += last_was_new_ && last_ == requester ? 2 : 1;
    last_was_new_ = is_new && current_ > 0;
    last_ = requester;
    return r.count;
  }
  // Whether every requester that took part in the step before has ended this one: the iteration seems to be over.
  bool is_complete() const noexcept {
    return std::ranges::none_of(requesters_,
                                [this](const Requester& r) { return r.count != 0 && r.count + 1 == current_; });
  }
  void set(uint64_t count) noexcept { current_ = count; }
  uint64_t current() const noexcept { return current_; }

 private:
  static constexpr size_t kMost = 64;
  struct Requester {
    uint64_t id = 0;
    uint64_t count = 0;
  };
  Requester& find(uint64_t id) noexcept {
    size_t i = 0;
    while (i + 1 < kMost && requesters_[i].count != 0 && requesters_[i].id != id) ++i;
    requesters_[i].id = id;
    return requesters_[i];
  }

  Requester requesters_[kMost];
  uint64_t current_ = 0;
  uint64_t last_ = 0;
  bool last_was_new_ = false;
};

}  // namespace torchprof
