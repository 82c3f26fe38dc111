// Makes marks `ProfilerStep#N` for a process whose program makes none.
//
// A program that gives torch.profiler a schedule makes its own in every phase of it, whether torch's profiler records
// or waits (user annotations, torch 1.13 to 2.14). Otherwise a step ends, in this order of preference, with
//   * torch.profiler.profile.step(), which annotates nothing without a schedule;
//   * an optimizer's step as Python shows it, told apart by instance;
//   * the annotation "Optimizer.step#SGD.step", by class only.
//
// Where a mark lies. A step ends inside of functions that are about to return, and a mark has to nest with them: the
// border between two steps is where the statement of the innermost call that holds both has ended. For a function
// train_step() that is called in a loop the border is its return, not the optimizer's. The first step begins with the
// statement that first calls a module, loads data or runs an operator that autograd sees: what stands before the loop
// is not part of it. Where a call ends that held some steps only (an epoch), the gap up to the next one belongs to no
// step. As with torch.profiler the last mark is what came after the last step, up to the end of the call that held it:
// readers such as HTA discard everything from its begin on.
//
// The steps of a process are those of the thread that steps first. Memory: the open spans of that thread.
#pragma once

#include <cstdint>
#include <optional>
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
    NameId ended_by;  // none: what came after the last step
  };

  StepTracker(const Process& process, Names& names);

  // Nothing to make: the program makes its own, or nothing in it steps.
  bool is_idle() const { return source_ == Source::kNone; }
  uint32_t thread() const { return thread_; }

  // A span has been pushed.
  void begun(uint32_t thread, ThreadStack& stack) {
    if (!is_idle() && !pending_ && is_work(stack[stack.size() - 1])) mark_work(thread, stack);
  }
  // A step of this thread has ended whose place in the stack is still to be found.
  bool is_waiting(uint32_t thread) const { return pending_ && thread_ == thread; }
  // `span` was at `i`, was taken and has ended. The mark of the step before the one that ended with it, if one did.
  std::optional<Mark> ended(uint32_t thread, const ThreadStack& stack, int32_t i, const Span& span, int64_t end,
                            bool finished);
  // The span at `i` was taken and is shown elsewhere.
  void detached(uint32_t thread, int32_t i);
  void thread_ended(uint32_t thread, int64_t t);
  // A window opens after all spans have ended and finish() was called: steps count on from `step`.
  void restart(uint64_t step);
  // When all spans have ended: the last step and the rest.
  std::vector<Mark> finish(int64_t t);

 private:
  enum class Source : uint8_t { kNone, kProfilerCalls, kOptimizers, kAnnotations };
  enum class Role : uint8_t { kUnseen, kPlain, kStep, kWork };

  struct Pending {  // a step that has ended; where its mark lies is known when the next one ends
    uint64_t number = 0;
    int64_t begin = 0;  // if it begins within what held the step before as well
    int32_t home = 0;   // how many of the spans that were open at its end hold the step before as well
    int64_t time = 0;
    int32_t depth = 0;                                  // spans that were open then
    std::vector<std::pair<int32_t, int64_t>> closed{};  // of those that have ended since: index, end
    NameId ended_by{};
    bool is_first = false;
    int32_t own_home = 0;  // the same two if it is the only one
    int64_t own_begin = 0;

    int32_t open() const { return closed.empty() ? depth : closed.back().first; }
    int64_t end_within(int32_t home_depth) const;
    std::optional<int64_t> end_of(int32_t home_depth) const;
  };

  Role role_of(const Span& span);
  bool is_work(const Span& span);
  void mark_work(uint32_t thread, ThreadStack& stack);
  int64_t work_in(const ThreadStack& stack, int32_t depth) const;
  void removed(int32_t i, int64_t end);
  void shifted(int32_t i);
  std::optional<Mark> stepped(uint32_t thread, const ThreadStack& stack, int32_t depth, NameId requester, int64_t end);

  const Process& process_;
  Names& names_;
  Source source_ = Source::kNone;
  uint32_t thread_ = 0;
  std::optional<Pending> pending_;
  std::vector<Role> roles_;                           // of operators, by name
  std::unordered_map<uint32_t, int64_t> first_work_;  // by thread
  uint64_t first_ = 0;  // steps that ended before what is recorded; the counter counts from it
  StepCounter counter_;
  std::optional<int64_t> thread_end_;
};

}  // namespace torchprof::formats
