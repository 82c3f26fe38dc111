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
  spans_.push_back(pushed);
  Span& span = spans_.back();
  span.outermost = span.is_async || open_count(span)++ == 0;
  span.below_python = top_python_;
  span.below_op = top_op_;
  if (span.is_op()) {
    if (top_op_ >= 0) span.outer_op = (*this)[top_op_].outer_op;
    if (!span.outer_op && !is_annotation(span.scope)) span.outer_op = span.name;
  }
  span.counts_from = span.begin;
  const int32_t around = nesting_op(span.below_op);
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
  const int32_t around = op_around(at);
  (*this)[at].op_child_ns = around >= 0 ? (*this)[around].child_ns : 0;
  for (int32_t i = at; i < size(); ++i) inherit_module(i);
}

void ThreadStack::inherit_module(int32_t i) {
  Span& span = (*this)[i];
  const Span* const below = i > 0 ? &(*this)[i - 1] : nullptr;
  if (!span.is_backward || !span.has_own_module)
    span.is_recompute = below && (below->is_recompute || (span.is_module_call && below->is_in_backward));
  span.is_in_backward = span.is_engine || (span.has_own_module && span.is_backward) || (below && below->is_in_backward);
  if (span.has_own_module) return;
  span.module = below ? below->module : ObjectId{};
  span.is_backward = below && below->is_backward;
}

int32_t ThreadStack::module_call_below(int32_t i) const {
  int32_t below = (*this)[i].below_python;
  while (below >= 0 && !(*this)[below].is_module_call) below = (*this)[below].below_python;
  return below;
}

Span ThreadStack::take(int32_t i) {
  const Span span = (*this)[i];
  apart_ -= span.is_apart ? 1 : 0;
  spans_.erase(spans_.begin() + i);
  if (!span.is_async && --open_count(span) > 0 && span.outermost) {
    const auto next = std::find_if(spans_.begin() + i, spans_.end(), [&span](const Span& s) {
      return s.is_op() == span.is_op() && s.name.value == span.name.value && !s.is_async;
    });
    if (next != spans_.end()) next->outermost = true;
  }
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

void ThreadStack::pass(int32_t i, int64_t t) {
  Span& span = (*this)[i];
  if (span.is_async) return;
  for (int32_t k = i + 1; k < size(); ++k) {
    Span& above = (*this)[k];
    if (!above.is_op() || above.is_async || nesting_op(above.below_op) != i) continue;
    add_to(span.child_ns, std::max<int64_t>(0, t - above.counts_from));
    above.counts_from = std::max(above.counts_from, t);
    return;  // those further up are inside of that one
  }
}

void ThreadStack::recomputed(int32_t i, int64_t ns) {
  const Span& span = (*this)[i];
  if (!span.is_recompute || (i > 0 && (*this)[i - 1].is_recompute)) return;
  const int32_t op = op_around(i);
  if (op >= 0)
    add_to((*this)[op].recompute_ns,
           std::max<int64_t>(0, difference(ns, difference((*this)[op].child_ns, span.op_child_ns))));
}

void ThreadStack::ended(const Span& span, int64_t end, int64_t drawn_end) {
  const int32_t around = nesting_op(span.below_op);
  if (end - span.recorded_begin() < min_ns) {
    if (around >= 0) add_to((*this)[around].calls_ns, span.calls_ns);
    return;
  }
  if (!span.is_op()) {
    if (span.below_python >= 0) add_to((*this)[span.below_python].child_ns, end - span.recorded_begin());
  } else if (!span.is_async && around >= 0) {
    add_to((*this)[around].child_ns, std::max<int64_t>(0, end - span.counts_from));
  }
  if (span.is_apart) return;
  if (const int32_t below = drawn_below(span.below() + 1); below >= 0)
    add_to((*this)[below].inside_ns, drawn_end - span.begin);
}

int32_t ThreadStack::drawn_below(int32_t i) const {
  while (--i >= 0 && (*this)[i].is_apart) {
  }
  return i;
}

void ThreadStack::leave_inside(int32_t i) {
  if (const int32_t below = drawn_below(i); below >= 0) add_to((*this)[below].inside_ns, (*this)[i].inside_ns);
  (*this)[i].inside_ns = 0;
}

void ThreadStack::set_apart(int32_t i) {
  leave_inside(i);
  (*this)[i].is_apart = true;
  ++apart_;
}

int32_t ThreadStack::on_row(int32_t i) const {
  if (apart_ == 0) return i;
  int32_t count = 0;
  for (int32_t k = 0; k < i; ++k) count += (*this)[k].is_apart ? 0 : 1;
  return count;
}

int32_t ThreadStack::index_on_row(int32_t n) const {
  if (apart_ == 0) return n;
  int32_t i = 0;
  for (; n > 0 || (*this)[i].is_apart; ++i) n -= (*this)[i].is_apart ? 0 : 1;
  return i;
}

}  // namespace torchprof::formats
