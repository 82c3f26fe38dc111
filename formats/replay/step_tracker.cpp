#include "formats/replay/step_tracker.h"

#include <algorithm>

namespace torchprof::formats {
namespace {

bool has_name(const Process& process, NameRole role) {
  return std::ranges::any_of(process.strings, [role](std::string_view s) { return s.starts_with(prefix_of(role)); });
}

bool has_function(const Process& process, FunctionKind kind) {
  return std::ranges::any_of(process.functions, [kind](const FunctionDef& f) { return f.id && f.kind == kind; });
}

}  // namespace

StepTracker::StepTracker(const Process& process, Names& names) : process_(process), names_(names) {
  if (has_name(process, NameRole::kProfilerStep)) return;
  const bool has_optimizers = has_function(process, FunctionKind::kOptimizerStep);
  const bool has_annotations = has_name(process, NameRole::kOptimizerStep);
  const bool are_told = !process.windows.empty() && !process.steps.empty() && (has_optimizers || has_annotations);
  if (has_function(process, FunctionKind::kProfilerStep) && !are_told) {
    source_ = Source::kProfilerCalls;
  } else if (has_optimizers) {
    source_ = Source::kOptimizers;
  } else if (has_annotations) {
    source_ = Source::kAnnotations;
  }
}

StepTracker::Role StepTracker::role_of(const Span& span) {
  if (!span.is_op()) {
    if (span.kind != SliceKind::kPython) return Role::kPlain;
    const auto function = span.function.value;
    if (function >= process_.functions.size() || !process_.functions[function].id) return Role::kPlain;
    switch (process_.functions[function].kind) {
      case FunctionKind::kModuleCall:
        return Role::kWork;
      case FunctionKind::kOptimizerStep:
        return source_ == Source::kOptimizers ? Role::kStep : Role::kPlain;
      case FunctionKind::kProfilerStep:
        return source_ == Source::kProfilerCalls ? Role::kStep : Role::kPlain;
      case FunctionKind::kFunction:
      case FunctionKind::kThread:
      case FunctionKind::kProcessGroup:
      case FunctionKind::kWorker:
      case FunctionKind::kScript:
      case FunctionKind::kImport:
      case FunctionKind::kCompile:
      case FunctionKind::kOurs:
        break;
    }
    return Role::kPlain;
  }
  const NameRole role = names_.role(span.name);
  if (source_ == Source::kAnnotations && role == NameRole::kOptimizerStep) return Role::kStep;
  return role == NameRole::kLoading ? Role::kWork : Role::kPlain;
}

bool StepTracker::is_work(const Span& span) {
  return (span.is_op() && span.sequence >= 0) || role_of(span) == Role::kWork;
}

// Every open span keeps the begin of the span directly inside it in which work first began.
void StepTracker::mark_work(uint32_t thread, ThreadStack& stack) {
  int64_t inside = stack[stack.size() - 1].begin;
  for (int32_t i = stack.size() - 1; i-- > 0;) {
    if (stack[i].is_apart) continue;
    if (stack[i].first_work != 0) return;  // then those below have it, too
    stack[i].first_work = inside;
    inside = stack[i].begin;
  }
  first_work_.try_emplace(thread, inside);
}

int64_t StepTracker::work_in(const ThreadStack& stack, int32_t depth) const {
  const Span& home = stack.nth_on_row(depth - 1);
  return std::max(home.begin, home.first_work);
}

// ---- what happens to the spans that a step ended in ------------------------------------------------------

int64_t StepTracker::Pending::end_within(int32_t home_depth) const {
  int64_t end = time;
  for (const auto& [index, at] : closed) {
    if (index >= home_depth) end = at;
  }
  return end;
}

std::optional<int64_t> StepTracker::Pending::end_of(int32_t home_depth) const {
  for (const auto& [index, at] : closed) {
    if (index < home_depth) return at;
  }
  return std::nullopt;
}

void StepTracker::Pending::removed(int32_t i, int64_t end) {
  if (i >= open()) return;  // it began after the step's end
  if (end < time) {
    // An annotation that ended before the step's end: the mark can only begin after it.
    if (i < home) begin = std::max(begin, end);
    if (i < own_home) own_begin = std::max(own_begin, end);
    return shifted(i);
  }
  closed.emplace_back(i, end);
}

// The span at `i` turns out not to hold the end of the step.
void StepTracker::Pending::shifted(int32_t i) {
  if (i >= open()) return;
  --depth;
  if (i < home) --home;
  if (i < own_home) --own_home;
  for (auto& [index, at] : closed) --index;
}

StepTracker::Mark StepTracker::Pending::own_mark() const {
  if (is_apart) return {number, std::min(begin, time), time, ended_by, thread, true};
  const int64_t end = end_within(is_first ? own_home : home);
  return {number, std::min(is_first ? own_begin : begin, end), end, ended_by, thread};
}

void StepTracker::detached(uint32_t thread, int32_t i) {
  if (is_waiting(thread)) pending_->shifted(i);
  if (prospect_ && prospect_->next.thread == thread) prospect_->next.shifted(i);
}

void StepTracker::thread_ended(uint32_t thread, int64_t t) {
  if (is_waiting(thread) && !pending_->thread_end) pending_->thread_end = t;
  if (prospect_ && prospect_->next.thread == thread && !prospect_->next.thread_end) prospect_->next.thread_end = t;
}

// ---- steps -----------------------------------------------------------------------------------------------

std::span<const StepTracker::Mark> StepTracker::ended(uint32_t thread, const ThreadStack& stack, int32_t i,
                                                      const Span& span, int64_t end, bool finished) {
  if (is_idle()) return {};
  if (border_ && span.preexisting && !span.is_apart) border_of_[thread] = end;
  if (is_waiting(thread) && !span.is_apart) pending_->removed(i, end);
  if (prospect_ && prospect_->next.thread == thread && !span.is_apart) prospect_->next.removed(i, end);
  // What was on the stack when capture began belongs to an earlier step.
  if (!finished || span.preexisting || !span.outermost || role_of(span) != Role::kStep) return {};
  marks_.clear();
  if (follows()) {
    take_recorded(span.begin);
    prospect_ = prospect(thread, stack, i, span.name, end);
  } else {
    count(span, stack, prospect(thread, stack, i, span.name, end));
  }
  return marks_;
}

StepTracker::Prospect StepTracker::prospect(uint32_t thread, const ThreadStack& stack, int32_t depth, NameId requester,
                                            int64_t end) const {
  Prospect made;
  Pending& next = made.next;
  next.time = end;
  next.depth = depth;
  next.ended_by = requester;
  next.thread = thread;
  if (!pending_ && border_) {
    const auto moved = border_of_.find(thread);
    next.begin = moved != border_of_.end() ? std::max(moved->second, *border_) : *border_;
    // What is open from before is stated with the first event, and drawn from there on.
    while (next.home < depth && stack.nth_on_row(next.home).preexisting)
      next.begin = std::max(next.begin, stack.nth_on_row(next.home++).begin);
    next.begin = std::min(next.begin, end);
    return made;
  }
  if (!pending_) {
    const auto work = first_work_.find(thread);
    next.begin = work != first_work_.end() ? work->second : depth > 0 ? stack.nth_on_row(0).begin : end;
    next.is_first = true;
    next.own_home = depth;
    next.own_begin = depth > 0 ? work_in(stack, depth) : next.begin;
    return made;
  }
  const Pending& p = *pending_;
  if (p.thread != thread) {
    // No call that held the end of this one holds that of the next: both have their exact times.
    made.mark =
        Mark{p.number, std::min(p.is_first ? p.own_begin : p.begin, p.time), p.time, p.ended_by, p.thread, true};
    next.begin = p.time;
    next.is_apart = true;
    return made;
  }
  const int32_t common = p.open();
  if (p.is_apart) {
    made.mark = p.own_mark();
  } else {
    int64_t begin = p.begin;
    if (common > p.home) begin = p.is_first ? work_in(stack, common) : stack.nth_on_row(common - 1).begin;
    const int64_t step_end = p.end_within(p.home);
    made.mark = Mark{p.number, std::min(begin, step_end), step_end, p.ended_by, p.thread};
  }
  next.begin = p.closed.empty() ? p.time : p.closed.back().second;
  next.home = common;
  return made;
}

// The step that `prospect_` is about has ended: it has this number.
void StepTracker::commit(uint64_t number) {
  if (prospect_->mark) marks_.push_back(*prospect_->mark);
  pending_ = std::move(prospect_->next);
  pending_->number = number;
  prospect_.reset();
}

// ---- steps whose ends the recorder has taken -------------------------------------------------------------

// As those of spans: within the selection.
int64_t StepTracker::time_of(size_t step) const {
  return std::clamp(process_.steps[step].end.value, process_.selection.begin, process_.selection.end);
}

// A step ended with the last requester's step before `until`, if one ended since that began.
void StepTracker::take_recorded(int64_t until) {
  const size_t first = next_;
  // Ends of later steps are known, too, also outside of windows.
  const auto is_before = [this, until](size_t step) { return step < process_.steps.size() && time_of(step) < until; };
  while (is_before(next_) && process_.steps[next_].end.value <= process_.selection.end) ++next_;
  // A requester that is cut at the edge of the selection ends its step there.
  if (first == next_ && prospect_ && prospect_->next.time >= process_.selection.end && is_before(next_)) ++next_;
  if (first == next_ || !prospect_) return;
  const uint64_t number = process_.steps[next_ - 1].step;
  const uint64_t expected = pending_ ? pending_->number + 1 : first_;
  if (number != expected && next_ >= 2) {
    prospect_->next.is_apart = true;
    prospect_->next.begin = time_of(next_ - 2);
  }
  commit(number);
}

// ---- steps that are counted here -------------------------------------------------------------------------

void StepTracker::count(const Span& optimizer, const ThreadStack& stack, Prospect ended) {
  const auto last = [this] { return first_ + counter_->current() - 1; };
  const NameId name = optimizer.name;
  const ObjectDef* const object = optimizer.object ? names_.object(optimizer.object) : nullptr;
  const bool is_known = object != nullptr && object->stepper;
  const NameId requester = is_known ? names_.function(optimizer.function, object->stepper) : name;
  const bool is_first = is_known && std::exchange(steps_now_[object->stepper], object->id) != object->id;
  switch (counter_->ended(requester.value, ended.next.thread, ended.next.time, is_first)) {
    case StepCounter::Ended::kBehind:
      return prospect_.reset();
    case StepCounter::Ended::kPart:
      extend(stack, ended);
      prospect_ = std::move(ended);
      return;
    case StepCounter::Ended::kSplit:
      // What has ended now follows the step before that is known only now.
      if (prospect_) {
        const Pending now = std::move(ended.next);
        commit(last() - 1);
        ended = prospect(now.thread, stack, now.depth, name, now.time);
      }
      break;
    case StepCounter::Ended::kNew:
      break;
  }
  prospect_ = std::move(ended);
  commit(last());
}

// Another requester's part of the same step.
void StepTracker::extend(const ThreadStack& stack, const Prospect& with) {
  Pending& p = *pending_;
  if (p.open() < p.home || p.is_apart || p.thread != with.next.thread) {
    // The call that held both steps has ended, or there is none.
    if (!p.is_apart) return;
    p.time = with.next.time;
    p.thread = with.next.thread;
    p.depth = with.next.depth;
    p.thread_end.reset();
    p.closed.clear();
    return;
  }
  if (p.is_first) {
    p.own_home = std::min(p.open(), p.own_home);
    p.own_begin = p.own_home > 0 ? work_in(stack, p.own_home) : p.begin;
  }
  p.time = with.next.time;
  p.thread_end.reset();
  p.depth = with.next.depth;
  p.closed.clear();
}

void StepTracker::restart(uint64_t step, int64_t begin) {
  first_ = step;
  counter_->start_at(0);
  pending_.reset();
  prospect_.reset();
  first_work_.clear();
  border_of_.clear();
  border_.reset();
  if (step != 0) border_ = std::clamp(begin, process_.selection.begin, process_.selection.end);
  while (next_ < process_.steps.size() && process_.steps[next_].end.value <= begin) ++next_;
}

std::span<const StepTracker::Mark> StepTracker::finish(int64_t t) {
  marks_.clear();
  if (follows()) take_recorded(t + 1);
  if (!pending_) return marks_;
  const Pending& p = *pending_;
  marks_.push_back(p.own_mark());
  const int64_t end = marks_.back().end;
  const int64_t rest =
      p.is_apart ? std::max(end, t)
                 : p.end_of(p.is_first ? p.own_home : p.home).value_or(p.thread_end.value_or(std::max(end, t)));
  marks_.push_back({p.number + 1, end, rest, {}, p.thread, p.is_apart});
  return marks_;
}

}  // namespace torchprof::formats
