#include "formats/replay/thread_stack.h"

#include <algorithm>
#include <utility>

namespace torchprof::formats {

uint32_t& ThreadStack::open_count(const Span& span) {
  auto& counts = open_[span.is_op()];
  if (span.name.value >= counts.size()) counts.resize(std::max<size_t>(span.name.value + 1, counts.size() * 2));
  return counts[span.name.value];
}

void ThreadStack::push(const Span& pushed) {
  const int32_t around = innermost_op();
  spans_.push_back(pushed);
  Span& span = spans_.back();
  span.outermost = open_count(span)++ == 0 || span.is_async;
  span.below_python = top_python_;
  span.below_op = top_op_;
  if (span.is_op()) {
    if (top_op_ >= 0) span.outer_op = (*this)[top_op_].outer_op;
    if (!span.outer_op && !is_annotation(span.scope)) span.outer_op = span.name;
  }
  span.op_child_ns = around >= 0 ? (*this)[around].child_ns : 0;
  (span.is_op() ? top_op_ : top_python_) = size() - 1;
  inherit_module(size() - 1);
}

void ThreadStack::push_below_ops(Span frame) {
  const int32_t at = top_python_ + 1;
  if (at >= size()) return push(frame);
  frame.outermost = open_count(frame)++ == 0;
  frame.begin = std::min(frame.begin, (*this)[at].begin);
  spans_.insert(spans_.begin() + at, frame);
  relink(at);
  const int32_t below_op = op_around(at);
  (*this)[at].op_child_ns = below_op >= 0 ? (*this)[below_op].child_ns : 0;
  for (int32_t i = at; i < size(); ++i) inherit_module(i);
}

void ThreadStack::inherit_module(int32_t i) {
  Span& span = (*this)[i];
  if (span.has_own_module) return;
  span.module = i > 0 ? (*this)[i - 1].module : ObjectId{};
  span.is_backward = i > 0 && (*this)[i - 1].is_backward;
}

int32_t ThreadStack::module_call_below(int32_t i) const {
  int32_t below = (*this)[i].below_python;
  while (below >= 0 && !(*this)[below].is_module_call) below = (*this)[below].below_python;
  return below;
}

Span ThreadStack::take(int32_t i) {
  const Span span = (*this)[i];
  --open_count(span);
  spans_.erase(spans_.begin() + i);
  if (i == size()) {
    top_python_ = span.below_python;
    top_op_ = span.below_op;
  } else {
    relink(i);
  }
  return span;
}

void ThreadStack::relink(int32_t from) {
  top_python_ = top_op_ = -1;
  if (from > 0) {
    const Span& below = (*this)[from - 1];
    top_python_ = below.is_op() ? below.below_python : from - 1;
    top_op_ = below.is_op() ? from - 1 : below.below_op;
  }
  for (int32_t i = from; i < size(); ++i) {
    Span& span = (*this)[i];
    span.below_python = top_python_;
    span.below_op = top_op_;
    (span.is_op() ? top_op_ : top_python_) = i;
  }
}

int32_t ThreadStack::find_op(uint64_t key) const {
  int32_t i = top_op_;
  while (i >= 0 && (*this)[i].key != key) i = (*this)[i].below_op;
  return i;
}

void ThreadStack::add_call(int64_t ns) {
  if (ns < min_ns) return;
  const int32_t op = innermost_op();
  if (op >= 0) add_to((*this)[op].calls_ns, ns);
}

void ThreadStack::dissolve(int32_t i) {
  Span& span = (*this)[i];
  const int32_t below = nesting_op(span.below_op);
  const int64_t before = below >= 0 ? (*this)[below].child_ns : 0;
  for (int32_t k = i + 1; k < size(); ++k)
    if (nesting_op((*this)[k].below_op) == i) add_to((*this)[k].op_child_ns, before);
  if (below >= 0) {
    add_to((*this)[below].child_ns, span.child_ns);
    add_to((*this)[below].calls_ns, span.calls_ns);
  }
  span.child_ns = span.calls_ns = 0;
}

void ThreadStack::add_child(const Span& span, int64_t ns) {
  const int32_t below = span.is_op() ? nesting_op(span.below_op) : span.below_python;
  if (below >= 0) add_to((*this)[below].child_ns, ns);
}

}  // namespace torchprof::formats
