// Makes the marks `ProfilerStep#N` for a process whose program makes none itself.
//
// A program that gives torch.profiler a schedule makes its own marks (user annotations, torch 1.13 to 2.14), whether
// torch's profiler records or waits. Otherwise a step ends with the first of these that the process has:
//   * torch.profiler.profile.step(), which annotates nothing without a schedule. Not in a run with windows whose steps
//     the recorder tells (below): it is not seen outside of them;
//   * an optimizer's step as a Python call, for each optimizer object on its own;
//   * the annotation "Optimizer.step#SGD.step", for each class on its own.
//
// Where a mark lies: a step ends inside functions that are about to return, and the mark has to nest with them. So the
// border between two steps is moved to the end of the statement of the innermost call that holds both: if a loop calls
// train_step(), the border is the return of train_step(), not that of the optimizer. The first step begins with the
// statement that first calls a module, loads data or runs an operator that autograd sees, so that code before the loop
// is not part of it. A window that opens behind a step does so at its end, and that is the border of the next one too.
// Where a call ends that held only some of the steps (an epoch), the gap up to the next step belongs to no step. As
// with torch.profiler the last mark is the rest after the last step, up to the end of the call that held that step:
// readers such as HTA discard everything from its begin on.
//
// Which steps there are, and their numbers, the recorder says where it took their times (StepEnd): a step ends with the
// last requester's step that ends around that time or before it. Otherwise they are counted here, by the same rule
// (tracer/spool/step_counter.h).
//
// A mark lies on the row of the thread on which its step ended. Where the step before ended on another thread, or is
// missing, there are no calls that hold both: the mark has its exact times, and a row of its own (`is_apart`).
//
// Memory: the open spans of two threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/replay/steps.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/names.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

class StepTracker {
 public:
  struct Mark {
    uint64_t number;
    int64_t begin;  // ns
    int64_t end;
    NameId ended_by;  // none: the rest after the last step
    uint32_t thread;
    bool is_apart = false;  // it may cross what is open on its thread
  };

  StepTracker(const Process& process, Names& names);

  // There are no marks to make: the program makes its own, or has no steps.
  bool is_idle() const { return source_ == Source::kNone; }

  // A span has been pushed to the stack.
  void begun(uint32_t thread, ThreadStack& stack) {
    if (!is_idle() && !pending_ && is_work(stack[stack.size() - 1])) mark_work(thread, stack);
  }
  // A step has ended on this thread, and its mark is not placed yet.
  bool is_waiting(uint32_t thread) const { return pending_ && pending_->thread == thread; }
  // `span` was taken from place `i` of the thread's row and has ended; of one that is apart `i` is how many others are
  // open there. The marks that can be placed now; valid until the next call.
  std::span<const Mark> ended(uint32_t thread, const ThreadStack& stack, int32_t i, const Span& span, int64_t end,
                              bool finished);
  // The span at place `i` of the thread's row is from now on drawn elsewhere.
  void detached(uint32_t thread, int32_t i);
  void thread_ended(uint32_t thread, int64_t t);
  // A window opens: steps count on from `step`. Before it all spans have ended and finish() was called.
  void restart(uint64_t step, int64_t begin);
  // After all spans have ended: the marks of the last steps, and that of the rest.
  std::span<const Mark> finish(int64_t t);

 private:
  enum class Source : uint8_t { kNone, kProfilerCalls, kOptimizers, kAnnotations };
  enum class Role : uint8_t { kPlain, kStep, kWork };

  // A step that has ended. Its mark can be placed when the next step ends: then it is known which spans hold both.
  struct Pending {
    uint64_t number = 0;
    int64_t begin = 0;  // the mark's, unless more than `home` spans hold the next step, too
    int32_t home = 0;   // how many of the spans that were open at its end also held the step before
    int64_t time = 0;   // its end
    int32_t depth = 0;  // how many spans were open at its end
    std::vector<std::pair<int32_t, int64_t>> closed{};  // those of them that have ended since: index and end
    NameId ended_by{};
    uint32_t thread = 0;
    bool is_apart = false;                // its mark has exact times: from `begin` to `time`
    std::optional<int64_t> thread_end{};  // when its thread ended, if it did
    bool is_first = false;
    // For the first step, in case that no other follows: the mark then lies in the innermost span that holds its end.
    int32_t own_home = 0;
    int64_t own_begin = 0;

    int32_t open() const { return closed.empty() ? depth : closed.back().first; }
    int64_t end_within(int32_t home_depth) const;
    std::optional<int64_t> end_of(int32_t home_depth) const;
    void removed(int32_t i, int64_t end);
    void shifted(int32_t i);
    Mark own_mark() const;  // if no other step follows in the calls that hold it
  };
  // What holds if a step turns out to have ended with a requester's step.
  struct Prospect {
    std::optional<Mark> mark;  // of the step before
    Pending next;
  };

  Role role_of(const Span& span);
  bool is_work(const Span& span);
  void mark_work(uint32_t thread, ThreadStack& stack);
  int64_t work_in(const ThreadStack& stack, int32_t depth) const;
  bool follows() const { return source_ != Source::kProfilerCalls && !process_.steps.empty(); }
  int64_t time_of(size_t step) const;  // of the recorder's
  Prospect prospect(uint32_t thread, const ThreadStack& stack, int32_t depth, NameId requester, int64_t end) const;
  void commit(uint64_t number);
  void take_recorded(int64_t until);
  void extend(const ThreadStack& stack, const Prospect& with);
  void count(const Span& optimizer, const ThreadStack& stack, Prospect ended);

  const Process& process_;
  Names& names_;
  Source source_ = Source::kNone;
  std::optional<Pending> pending_;
  // Follows the recorder: the last requester's step that has ended. Counts: the first one of a new requester, which may
  // turn out to be a step of its own.
  std::optional<Prospect> prospect_;
  std::vector<Mark> marks_;
  std::unordered_map<uint32_t, int64_t> first_work_;  // by thread
  // Of a window that has opened behind a step: when; and by thread, when the last call has ended that was open then.
  std::optional<int64_t> border_{};
  std::unordered_map<uint32_t, int64_t> border_of_;
  uint64_t first_ = 0;  // steps that ended before the recording; numbers count on from here
  size_t next_ = 0;     // of Process::steps
  std::unique_ptr<StepCounter> counter_ = std::make_unique<StepCounter>();
  std::unordered_map<ObjectId, ObjectId> steps_now_;  // of optimizers that have replaced others: by stepper
};

}  // namespace torchprof::formats
