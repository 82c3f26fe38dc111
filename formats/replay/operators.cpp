#include "formats/replay/replay_impl.h"

#include <algorithm>

namespace torchprof::formats {

// torch.autograd's functions that run the engine; 1.13 to 2.15.
bool Replay::Impl::is_backward_function(FunctionId function) {
  if (function.value >= process_.functions.size()) return false;
  if (is_backward_.empty()) is_backward_.resize(process_.functions.size());
  int8_t& known = is_backward_[function.value];
  if (known == 0) {
    const FunctionDef& def = process_.functions[function.value];
    const std::string_view name = process_.string(def.name);
    const bool is_it =
        (name == "backward" || name == "grad") && process_.string(def.file).ends_with("torch/autograd/__init__.py");
    known = is_it ? 1 : -1;
  }
  return known > 0;
}

void Replay::Impl::begin_op(ReplayThread& thread, const OpBegin& begin, int64_t t) {
  ThreadStack& stack = thread.stack;
  Span span{.kind = SliceKind::kOperator};
  span.is_async = begin.is_async != 0;
  span.scope = begin.scope;
  span.name = names_.operator_name(begin.name);
  span.recorded = begin.name;
  span.begin = t;
  span.id = ++stats_.external_ids;
  span.key = begin.key;
  span.handle = begin.scope == OpScope::kNvtx ? 0 : begin.handle;
  span.sequence = begin.sequence;
  span.fwd_thread = begin.fwd_thread;
  span.line = line_here(thread, begin.scope != OpScope::kNvtx);
  find_module(span);
  span.is_engine = begin.scope == OpScope::kFunction && names_.role(span.name) == NameRole::kNode;
  // On a thread of the engine's own: what called the backward that began last.
  if (span.is_engine && !span.line && stack.size() == 0) span.line = backward_line_;
  if (begin.scope == OpScope::kBackwardFunction && stack.top_op() >= 0) {
    Span& before = stack[stack.top_op()];
    if (before.key == thread.last_op_key && before.scope == OpScope::kFunction &&
        names_.role(before.name) == NameRole::kNode) {
      before.sequence = begin.sequence;
      before.fwd_thread = begin.fwd_thread;
      before.has_own_module = before.is_backward = true;
      before.is_recompute = false;
      before.module = span.module;
    }
  }
  push(thread, span);
  thread.last_op_key = begin.key;
  if (span.sequence >= 0 && span.fwd_thread == 0 && !thread.track->torch_threads.empty())
    forward_modules_.forward_began(thread.track->torch_threads.back(), span.sequence, stack[stack.size() - 1].module);
}

// A backward operator has the module of its forward operator. AccumulateGrad has no sequence number, so it has no
// module.
void Replay::Impl::find_module(Span& span) const {
  if (span.scope != OpScope::kBackwardFunction && (span.sequence < 0 || span.fwd_thread == 0)) return;
  span.has_own_module = span.is_backward = true;
  if (span.sequence >= 0) span.module = forward_modules_.find(span.fwd_thread, span.sequence).value_or(ObjectId{});
}

void Replay::Impl::end_op(ReplayThread& thread, uint64_t key, int64_t t) {
  if (const int32_t open = thread.stack.find_op(key); open >= 0) return close_op(thread, open, t);
  for (size_t i = 0; i < thread.detached.size(); ++i) {
    if (thread.detached[i].key == key) return end_detached(thread, i, t, true);
  }
  if (!end_op_elsewhere(thread, key, t)) ++stats_.unmatched_ends;
}

void Replay::Impl::end_op_here(ReplayThread& thread, uint32_t low_key, int64_t t) {
  const auto is_it = [low_key](const Span& span) {
    return (span.key & ShortRecord::kMaxValue) == low_key && !is_nvtx_key(span.key);
  };
  int32_t i = thread.stack.top_op();
  while (i >= 0 && !is_it(thread.stack[i])) i = thread.stack[i].below_op;
  if (i >= 0) return close_op(thread, i, t);
  // The latest one with this key whose thread has ended.
  for (size_t k = thread.detached.size(); k-- > 0;) {
    if (is_it(thread.detached[k])) return end_detached(thread, k, t, true);
  }
  ++stats_.unmatched_ends;
}

bool Replay::Impl::end_op_elsewhere(ReplayThread& ended_on, uint64_t key, int64_t t) {
  for (ReplayThread& other : threads_) {
    if (&other == &ended_on) continue;
    if (other.restating) end_restating(other);
    const int32_t i = other.stack.find_op(key);
    if (i >= 0 && other.calls != nullptr) calls_until(other, t, false);
    if (i >= 0) {
      if (i != other.stack.size() - 1) set_apart(other, i);
      close_op(other, i, t);
      return true;
    }
    for (size_t i = 0; i < other.detached.size(); ++i) {
      if (other.detached[i].key != key) continue;
      end_detached(other, i, t, true);
      return true;
    }
  }
  return false;
}

void Replay::Impl::close_op(ReplayThread& thread, int32_t i, int64_t t) {
  ThreadStack& stack = thread.stack;
  t = std::max(stack[i].begin, t);
  stack.pass(i, t);
  int64_t drawn_end = t;
  if (i == stack.size() - 1 || stack[i].is_apart) {
    // It crosses nothing, or nothing that is drawn beside it.
  } else if (is_annotation(stack[i].scope) || stack[i].is_async) {
    cross_above(thread, i, t);
  } else if (stack.top_python() > i) {
    set_apart(thread, i);
  } else {
    drawn_end = cut_before(thread, i, t);
  }
  close(thread, i, t, drawn_end, true, true);
}

// The range `i` ends at `t`, below spans that began in it and are still open. Those that help to end it are drawn from
// there on. What else crosses needs another row: the ranges above, or for a function or an operator the range itself.
void Replay::Impl::cross_above(ReplayThread& thread, int32_t i, int64_t t) {
  ThreadStack& stack = thread.stack;
  const auto is_range = [&stack](int32_t k) { return stack[k].is_op() && is_annotation(stack[k].scope); };
  int32_t first = i + 1;
  while (first < stack.size() && (stack[first].is_apart || is_range(first))) ++first;
  bool are_helpers = !stack[i].is_async;
  if (first < stack.size() && !ranges_.is_helper(stack[first])) {
    for (int32_t k = first; k < stack.size(); ++k)
      are_helpers = are_helpers && (is_range(k) || stack[k].kind == SliceKind::kCCall);
  }
  if (!are_helpers) return set_apart(thread, i);
  for (int32_t k = stack.size() - 1; k > i; --k) {
    Span& above = stack[k];
    if (above.is_apart) continue;
    if (is_range(k) || above.is_async) {
      set_apart(thread, k);
      continue;
    }
    stack.leave_inside(k);
    above.cut += std::max<int64_t>(0, t - above.begin);
    above.begin = std::max(above.begin, t);
  }
}

// Span `i` ends at `t`, below operators that began in it and are still open. Returns up to where it is drawn: to the
// begin of the first range that it helps to begin. The others need a row of their own.
int64_t Replay::Impl::cut_before(ReplayThread& thread, int32_t i, int64_t t) {
  ThreadStack& stack = thread.stack;
  int64_t drawn_end = t;
  for (int32_t k = stack.size() - 1; k > i; --k) {
    if (!stack[k].is_op() || stack[k].is_apart) continue;
    if (!helps_to_begin(thread, i, k))
      set_apart(thread, k);
    else
      drawn_end = std::min(drawn_end, std::max(stack[i].begin, stack[k].begin));
  }
  return drawn_end;
}

// `range` is the first operator in which span `i` was still open.
bool Replay::Impl::helps_to_begin(ReplayThread& thread, int32_t i, int32_t range) {
  ThreadStack& stack = thread.stack;
  if (stack[range].is_async || !is_annotation(stack[range].scope)) return false;
  if (stack[i].is_op() && is_annotation(stack[i].scope)) return false;
  if (!stack[range].is_judged) {
    stack[range].is_judged = true;
    stack[range].helper = ranges_.find_helper(stack, range, thread.cursor);
  }
  const uint64_t helper = stack[range].helper;
  if (helper == 0) return false;
  for (int32_t k = stack[i].is_op() ? stack[i].below_python : i; k >= 0; k = stack[k].below_python)
    if (stack[k].id == helper) return true;
  return false;
}

void Replay::Impl::set_apart(ReplayThread& thread, int32_t i) {
  if (thread.stack[i].is_apart) return;
  steps_.detached(thread.row, thread.stack.on_row(i));
  thread.stack.set_apart(i);
}

// Takes span `i` off the stack and hands it out.
void Replay::Impl::close(ReplayThread& thread, int32_t i, int64_t t, int64_t drawn_end, bool finished, bool has_ended) {
  ThreadStack& stack = thread.stack;
  const bool has_marks = !steps_.is_idle();
  const int32_t place = has_marks ? stack.on_row(stack[i].is_apart ? stack.size() : i) : 0;
  const Span span = stack.take(i);
  stack.ended(span, t, drawn_end);
  // What is above it is no longer in this call of a module.
  for (int32_t k = i; span.is_module_call && k < stack.size(); ++k) stack.inherit_module(k);
  const uint32_t row = span.is_apart ? overflow_row(thread, span.begin, t) : thread.row;
  emit(thread, row, span, t, drawn_end, finished);
  if (span.is_op() && finished) link(thread, row, span);
  if (has_marks) took(thread, place, span, drawn_end, has_ended);
}

void Replay::Impl::detach(ReplayThread& thread, int32_t i) {
  set_apart(thread, i);
  thread.detached.push_back(thread.stack.take(i));
}

void Replay::Impl::end_detached(ReplayThread& thread, size_t i, int64_t t, bool finished) {
  const Span span = thread.detached[i];
  thread.detached.erase(thread.detached.begin() + static_cast<ptrdiff_t>(i));
  const int64_t end = std::max(span.begin, t);
  const uint32_t row = overflow_row(thread, span.begin, end);
  emit(thread, row, span, end, end, finished);
  if (finished) link(thread, row, span);
}

// The first row on which it nests. Slices come in the order of their ends, so it can only be around others.
uint32_t Replay::Impl::overflow_row(ReplayThread& thread, int64_t begin, int64_t end) {
  for (OverflowRow& row : thread.overflow)
    if (row.takes(begin, end)) return row.number;
  const auto number = static_cast<uint32_t>(rows_.size());
  const Row& own = rows_[thread.row];
  rows_.push_back({next_tid_++, own.tid, own.thread_name, own.python_name, true});
  thread.overflow.push_back({number, {}});
  thread.overflow.back().takes(begin, end);
  return number;
}

bool OverflowRow::takes(int64_t begin, int64_t end) {
  if (!taken.empty() && end < taken.back().second) return false;
  size_t i = taken.size();
  while (i > 0 && taken[i - 1].first >= begin) --i;
  if (i > 0 && taken[i - 1].second > begin) return false;
  taken.resize(i);
  taken.emplace_back(begin, end);
  // The oldest count as one from the first's begin to the last's end, so that this takes no more room.
  constexpr size_t kMost = 64;
  if (taken.size() > kMost) {
    taken[1].first = taken[0].first;
    taken.erase(taken.begin());
  }
  return true;
}

void Replay::Impl::link(const ReplayThread& thread, uint32_t row, const Span& span) {
  if (span.sequence < 0) return;
  if (span.fwd_thread > 0) {
    const auto forward = forward_backward_.backward_ended(span.fwd_thread, span.sequence);
    if (!forward) return;
    sink_->flow(
        {.id = ++stats_.flows, .from_row = forward->row, .to_row = row, .from = {forward->begin}, .to = {span.begin}});
  } else if (!thread.track->torch_threads.empty()) {
    forward_backward_.forward_ended(thread.track->torch_threads.back(), span.sequence, {span.begin, row});
  }
}

}  // namespace torchprof::formats
