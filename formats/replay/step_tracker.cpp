#include "formats/replay/step_tracker.h"

#include <algorithm>

namespace torchprof::formats {
namespace {

constexpr std::string_view kDataLoader = "enumerate(DataLoader)#";

bool has_name(const Process& process, std::string_view prefix) {
  return std::ranges::any_of(process.strings, [prefix](std::string_view s) { return s.starts_with(prefix); });
}

bool has_function(const Process& process, FunctionKind kind) {
  return std::ranges::any_of(process.functions, [kind](const FunctionDef& f) { return f.id && f.kind == kind; });
}

}  // namespace

StepTracker::StepTracker(const Process& process, Names& names) : process_(process), names_(names) {
  if (has_name(process, kProfilerStep)) return;
  if (has_function(process, FunctionKind::kProfilerStep)) {
    source_ = Source::kProfilerCalls;
  } else if (has_function(process, FunctionKind::kOptimizerStep)) {
    source_ = Source::kOptimizers;
  } else if (has_name(process, kOptimizerStep)) {
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
        break;
    }
    return Role::kPlain;
  }
  if (span.name.value >= roles_.size()) roles_.resize(names_.size() + 1);
  Role& role = roles_[span.name.value];
  if (role == Role::kUnseen) {
    const std::string_view text = names_.text(span.name);
    role = Role::kPlain;
    if (text.starts_with(kDataLoader)) role = Role::kWork;
    if (source_ == Source::kAnnotations && text.starts_with(kOptimizerStep)) role = Role::kStep;
  }
  return role;
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

void StepTracker::removed(int32_t i, int64_t end) {
  if (i >= pending_->open()) return;  // it began after the step's end
  if (end < pending_->time) {
    // An annotation that ended before the step's end: the mark can only begin after it.
    Pending& p = *pending_;
    if (i < p.home) p.begin = std::max(p.begin, end);
    if (i < p.own_home) p.own_begin = std::max(p.own_begin, end);
    return shifted(i);
  }
  pending_->closed.emplace_back(i, end);
}

// The span at `i` turns out not to hold the end of the step.
void StepTracker::shifted(int32_t i) {
  Pending& p = *pending_;
  if (i >= p.open()) return;
  --p.depth;
  if (i < p.home) --p.home;
  if (i < p.own_home) --p.own_home;
  for (auto& [index, at] : p.closed) --index;
}

void StepTracker::detached(uint32_t thread, int32_t i) {
  if (pending_ && thread == thread_) shifted(i);
}

void StepTracker::thread_ended(uint32_t thread, int64_t t) {
  if (pending_ && thread == thread_ && !thread_end_) thread_end_ = t;
}

// ---- steps -----------------------------------------------------------------------------------------------

std::optional<StepTracker::Mark> StepTracker::ended(uint32_t thread, const ThreadStack& stack, int32_t i,
                                                    const Span& span, int64_t end, bool finished) {
  if (is_idle() || (pending_ && thread != thread_)) return std::nullopt;
  if (pending_ && !span.is_apart) removed(i, end);
  // What was on the stack when capture began belongs to an earlier step.
  if (!finished || span.preexisting || !span.outermost || role_of(span) != Role::kStep) return std::nullopt;
  return stepped(thread, stack, i, span.name, end);
}

std::optional<StepTracker::Mark> StepTracker::stepped(uint32_t thread, const ThreadStack& stack, int32_t depth,
                                                      NameId requester, int64_t end) {
  const uint64_t count = counter_.ended(requester.value);
  if (count < counter_.current()) return std::nullopt;
  if (count == counter_.current()) {  // another optimizer's part of the same step
    Pending& p = *pending_;
    if (p.open() < p.home) return std::nullopt;  // the call that held both steps has ended
    if (p.is_first) {
      p.own_home = std::min(p.open(), p.own_home);
      p.own_begin = p.own_home > 0 ? work_in(stack, p.own_home) : p.begin;
    }
    p.time = end;
    thread_end_.reset();
    p.depth = depth;
    p.closed.clear();
    return std::nullopt;
  }
  Pending next{.number = first_ + counter_.current(), .time = end, .depth = depth, .ended_by = requester};
  std::optional<Mark> mark;
  if (pending_) {
    const Pending& p = *pending_;
    const int32_t common = p.open();
    int64_t begin = p.begin;
    if (common > p.home) begin = p.is_first ? work_in(stack, common) : stack.nth_on_row(common - 1).begin;
    const int64_t step_end = p.end_within(p.home);
    mark = Mark{p.number, std::min(begin, step_end), step_end, p.ended_by};
    next.begin = p.closed.empty() ? p.time : p.closed.back().second;
    next.home = common;
  } else {
    thread_ = thread;
    const auto work = first_work_.find(thread);
    next.begin = work != first_work_.end() ? work->second : depth > 0 ? stack.nth_on_row(0).begin : end;
    next.is_first = true;
    next.own_home = depth;
    next.own_begin = depth > 0 ? work_in(stack, depth) : next.begin;
  }
  pending_ = std::move(next);
  thread_end_.reset();
  counter_.set(count);
  return mark;
}

void StepTracker::restart(uint64_t step) {
  first_ = step;
  counter_ = {};
  pending_.reset();
  thread_end_.reset();
  first_work_.clear();
}

std::vector<StepTracker::Mark> StepTracker::finish(int64_t t) {
  if (!pending_) return {};
  const Pending& p = *pending_;
  const int32_t home = p.is_first ? p.own_home : p.home;
  const int64_t end = p.end_within(home);
  const int64_t rest = p.end_of(home).value_or(thread_end_.value_or(std::max(end, t)));
  return {{p.number, std::min(p.is_first ? p.own_begin : p.begin, end), end, p.ended_by},
          {first_ + counter_.current(), end, rest, {}}};
}

}  // namespace torchprof::formats
