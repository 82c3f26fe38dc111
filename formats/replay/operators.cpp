#include "formats/replay/replay_impl.h"

#include <algorithm>

namespace torchprof::formats {

bool Replay::Impl::is_evaluate_function(NameId name) {
  if (name.value >= is_evaluate_.size()) is_evaluate_.resize(names_.size() + 1);
  int8_t& known = is_evaluate_[name.value];
  if (known == 0) known = names_.text(name).starts_with(kEvaluateFunction) ? 1 : -1;
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
  find_module(span);
  if (begin.scope == OpScope::kBackwardFunction && stack.top_op() >= 0) {
    Span& before = stack[stack.top_op()];
    if (before.key == thread.last_op_key && before.scope == OpScope::kFunction && is_evaluate_function(before.name)) {
      before.sequence = begin.sequence;
      before.fwd_thread = begin.fwd_thread;
      before.has_own_module = before.is_backward = true;
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
  const int32_t open = thread.stack.find_op(key);
  if (open >= 0 && !(thread.stack[open].is_async && thread.stack.top_op() > open)) return close_op(thread, open, t);
  if (open >= 0) detach(thread, open);
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
  // The latest one with this key that was moved to a row of its own.
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
      if (i == other.stack.size() - 1) {
        close_op(other, i, t);
      } else {
        detach(other, i);
        end_detached(other, other.detached.size() - 1, t, true);
      }
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
  int64_t end = t;
  if (i != stack.size() - 1) {
    int32_t frame = i + 1;
    while (frame < stack.size() && stack[frame].is_op()) ++frame;
    for (; frame > i + 1; --frame) detach(thread, frame - 1);
    if (frame < stack.size()) {
      end = std::max(stack[i].begin, stack[frame].begin);
      if (stack[frame].below_op == i) {
        // Operators that ran inside that frame are no longer inside this operator.
        const int64_t beyond = stack[i].child_ns - stack[frame].op_child_ns;
        stack[i].child_ns -= beyond;
        stack.add_child(stack[i], beyond);
      }
    }
  }
  const Span span = stack.take(i);
  stack.ended(span, end - span.begin);
  emit(thread, thread.row, span, end, true);
  link(thread, thread.row, span);
  took(thread, i, span, end, true);
}

void Replay::Impl::detach(ReplayThread& thread, int32_t i) {
  thread.stack.leave_inside(i);
  thread.stack.dissolve(i);
  thread.detached.push_back(thread.stack.take(i));
  steps_.detached(thread.row, i);
}

void Replay::Impl::end_detached(ReplayThread& thread, size_t i, int64_t t, bool finished) {
  const Span span = thread.detached[i];
  thread.detached.erase(thread.detached.begin() + static_cast<ptrdiff_t>(i));
  const int64_t end = std::max(span.begin, t);
  const uint32_t row = overflow_row(thread, span.begin, end);
  emit(thread, row, span, end, finished);
  if (finished) link(thread, row, span);
}

uint32_t Replay::Impl::overflow_row(ReplayThread& thread, int64_t begin, int64_t end) {
  for (auto& [row, taken_until] : thread.overflow) {
    if (begin < taken_until) continue;
    taken_until = end;
    return row;
  }
  const auto row = static_cast<uint32_t>(rows_.size());
  const Row& own = rows_[thread.row];
  rows_.push_back({next_tid_++, own.tid, own.thread_name, own.python_name, true});
  thread.overflow.emplace_back(row, end);
  return row;
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
