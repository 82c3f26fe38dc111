// Counts the steps of a training: the one definition of a step, for the recorder (window.h) and for readers of runs
// that do not say where their steps end (no StepEnd).
//
// Each requester (an optimizer) has a count, and the largest is the step, as in torch's KinetoStepTracker
// (torch/autograd/profiler.py). So two optimizers in one iteration make one step, which ends with the last of them; of
// a critic that steps five times and a generator that steps once the critic's are the steps; and two threads with an
// optimizer each have the steps of the faster one. Beyond torch's rule:
//   * The first step of a new requester completes the current step, as in the first iteration of two optimizers. If its
//     second step comes right after, its first was a step of its own (kSplit).
//   * Nobody is further behind than kMostBehind: where another optimizer goes on alone, its steps soon count. Two
//     threads may just take turns of many steps each: there one goes on alone once no other has stepped for kAlone.
//   * An optimizer that replaces one that is gone, with the same parameters, is the same requester and goes on with its
//     count; as a new one, if the other has taken part neither in the current step nor in the one before.
//   * A new requester that turns out to run beside another thread's, since that one goes on where it was, has the
//     number of its own steps from then on: otherwise those that the other one made before it would count twice.
//
// Requesters and threads are any numbers, times in ns. Of the requesters that are not far behind kMost are told apart;
// if there are more, the last of them is forgotten and counts as new when it comes again. Pure; no allocation; one
// thread at a time. As large as 64 KiB: never on the stack of a thread that is not ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace torchprof {

class StepCounter {
 public:
  enum class Ended : uint8_t {
    kBehind,  // no part of the current step
    kPart,    // the current step ends with it, so far
    kNew,     // a new step has ended, the current one from here on
    kSplit,   // two have: one with what the requester ended before, which was no part of the step before, and this one
  };
  static constexpr uint64_t kMostBehind = 64;
  static constexpr int64_t kAlone = 1'000'000'000;  // ns

  // `is_first`: of this optimizer, which may have replaced another one as the requester.
  Ended ended(uint64_t requester, uint64_t thread, int64_t at, bool is_first = false) noexcept {
    if (joined_count_ != 0) part_joined(requester, thread);
    Requester& r = find(requester);
    if (last_ != requester) other_ = latest_;
    latest_ = {thread, at};
    const bool is_new = r.count == 0 || (is_first && r.count + 1 < current_);
    const bool is_again = last_was_new_ && last_ == requester;
    last_ = requester;
    last_was_new_ = is_new && current_ > 0;
    leave(r.count);
    if (is_new && current_ > 0) {
      join(requester, thread);
      r.count = current_;
      ++there_;
      return Ended::kPart;
    }
    if (is_again && r.count == current_) {  // nobody else takes part in the two
      current_ += 2;
      r.count = current_;
      behind_ = 0;
      there_ = 1;
      if (joined_count_ != 0 && joined_[joined_count_ - 1].id == requester) ++joined_[joined_count_ - 1].first;
      return Ended::kSplit;
    }
    const bool may_be_alone = other_.thread == thread || at - other_.at >= kAlone;
    if (may_be_alone) r.count = std::max(r.count, current_ - std::min(current_, kMostBehind));
    ++r.count;
    if (r.count > current_) {
      current_ = r.count;
      behind_ = there_;
      there_ = 1;
      return Ended::kNew;
    }
    if (r.count + 1 == current_) ++behind_;
    if (r.count != current_) return Ended::kBehind;
    ++there_;
    return Ended::kPart;
  }
  // Whether every requester that took part in the step before has ended this one: the iteration seems to be over.
  bool is_complete() const noexcept { return behind_ == 0; }
  uint64_t current() const noexcept { return current_; }  // steps that have ended

  // Forgets all requesters. `current` steps have ended.
  void start_at(uint64_t current) noexcept {
    if (has_requesters_) std::fill_n(requesters_, kMost, Requester{});
    has_requesters_ = false;
    current_ = current;
    last_ = there_ = behind_ = joined_count_ = 0;
    last_was_new_ = false;
    other_ = latest_ = {};
  }

 private:
  static constexpr size_t kMost = 4096;  // a power of two
  static constexpr size_t kLooked = 32;  // places that are looked at for a requester
  struct Requester {
    uint64_t id = 0;
    uint64_t count = 0;  // 0: the place is free
  };
  // Its place, or the one for it: a free one, otherwise that of the one that is the furthest behind.
  Requester& find(uint64_t id) noexcept {
    const size_t first = place_of(id);
    Requester* last = nullptr;
    for (size_t i = 0; i < kLooked; ++i) {
      Requester& r = requesters_[(first + i) % kMost];
      if (r.count != 0 && r.id == id) return r;
      if (last == nullptr || r.count < last->count) last = &r;
      if (r.count == 0) break;
    }
    leave(last->count);
    *last = {id, 0};
    has_requesters_ = true;
    return *last;
  }
  struct Joined {
    uint64_t id = 0;
    uint64_t thread = 0;
    uint64_t step = 0;   // that it joined
    uint64_t first = 0;  // that ended with its own first step
  };
  void join(uint64_t id, uint64_t thread) noexcept {
    const Joined* const end =
        std::remove_if(joined_, joined_ + joined_count_, [id](const Joined& j) { return j.id == id; });
    joined_count_ = static_cast<size_t>(end - joined_);
    if (joined_count_ == kMostJoined) std::shift_left(joined_, joined_ + joined_count_--, 1);
    joined_[joined_count_++] = {id, thread, current_, current_};
  }
  // This one steps again. If others joined the step that it was at, on threads of their own, all of them run at once.
  // So do those that joined later, at the step to which the first of them had come by then.
  void part_joined(uint64_t id, uint64_t thread) noexcept {
    const Requester* const again = known(id);
    if (again == nullptr) return;
    const uint64_t step = again->count;
    const auto is_beside = [&](const Joined& j) { return j.id != id && j.thread != thread; };
    size_t kept = 0;
    bool has_any = false;
    for (size_t i = 0; i < joined_count_; ++i) {
      const Joined j = joined_[i];
      has_any = has_any || (j.step == step && is_beside(j));
      const bool takes_turns = j.step == step && j.thread == thread && j.id != id;
      if (has_any && is_beside(j))
        count_own_steps(j);
      else if (!takes_turns)
        joined_[kept++] = j;
    }
    joined_count_ = kept;
  }
  void count_own_steps(const Joined& j) noexcept {
    Requester* const r = known(j.id);
    if (r == nullptr || r->count < j.first) return;
    leave(r->count);
    r->count -= j.first - 1;
    there_ += r->count == current_;
    behind_ += r->count + 1 == current_;
  }
  Requester* known(uint64_t id) noexcept {
    const size_t first = place_of(id);
    for (size_t i = 0; i < kLooked; ++i) {
      Requester& r = requesters_[(first + i) % kMost];
      if (r.count == 0) return nullptr;
      if (r.id == id) return &r;
    }
    return nullptr;
  }
  static size_t place_of(uint64_t id) noexcept { return static_cast<size_t>(id * 0x9e3779b97f4a7c15u >> 52); }
  // One with this count is about to have another one.
  void leave(uint64_t count) noexcept {
    if (count == 0) return;
    if (count == current_) --there_;
    if (count + 1 == current_) --behind_;
  }

  Requester requesters_[kMost];
  uint64_t current_ = 0;
  uint64_t last_ = 0;
  struct {
    uint64_t thread = 0;
    int64_t at = 0;
  } latest_, other_;  // the step before; the last one of another requester than that
  static constexpr size_t kMostJoined = 8;
  Joined joined_[kMostJoined];  // the new ones of which it is not known yet whether they run beside others
  size_t joined_count_ = 0;
  bool last_was_new_ = false;
  bool has_requesters_ = false;
  uint64_t there_ = 0;   // requesters that have ended the current step
  uint64_t behind_ = 0;  // those that have ended the step before it and not this one
};

}  // namespace torchprof
