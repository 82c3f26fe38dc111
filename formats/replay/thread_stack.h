// The spans that are open on one thread: a stack from which also the middle can be taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/io/sum.h"
#include "formats/replay/replay.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

struct Span {
  SliceKind kind;
  bool preexisting = false;
  bool is_async = false;
  bool outermost = false;
  OpScope scope{};
  NameId name{};
  FunctionId function{};
  ObjectId object{};
  // The innermost call of an nn.Module around it, its own included, or in a backward operator and what is inside it the
  // module of the forward operator. Taken over from the span below where `has_own_module` does not say otherwise.
  ObjectId module{};
  bool is_backward = false;
  bool has_own_module = false;
  bool is_module_call = false;
  int64_t module_child_ns = 0;  // of a module's call: in calls of other modules directly inside that have ended
  CallSiteId site{};
  uint32_t generation = 0;
  int64_t collected = 0;
  int64_t uncollectable = 0;
  int64_t begin = 0;       // ns, UnixNs
  int64_t first_work = 0;  // ns, of the span directly inside in which work first began: formats/replay/step_tracker.h
  int64_t child_ns = 0;    // in spans of the same kind directly inside that have ended
  uint64_t id = 0;         // python_id or external_id
  // operators
  uint64_t key = 0;
  uint64_t handle = 0;
  int64_t sequence = -1;
  uint64_t fwd_thread = 0;
  StringId recorded{};
  StringId inputs{};
  StringId collective{};
  int64_t collective_sequence = -1;
  NativeFrameId native{};
  NameId outer_op{};  // name of the outermost operator, this one included, annotations apart
  // The nearest spans below, as indices, -1 if none: of Python frames and C calls, and of operators.
  int32_t below_python = -1;
  int32_t below_op = -1;
  int64_t inside_ns = 0;    // in spans of any kind directly inside that have ended
  int64_t op_child_ns = 0;  // child_ns of the nearest operator below when this span began

  int32_t below() const { return std::max(below_python, below_op); }
  bool is_op() const { return kind == SliceKind::kOperator; }
  // Not an annotation.
  bool is_real_op() const { return is_op() && !is_annotation(scope); }
};

// The same of a span and of the slice that it becomes; of one process, unique among those that have an id.
inline uint64_t span_key(bool is_op, uint64_t id) { return id << 1 | uint64_t{is_op}; }
inline uint64_t span_key(const Span& span) { return span_key(span.is_op(), span.id); }
inline uint64_t span_key(const Slice& slice) {
  const bool is_op = slice.kind == SliceKind::kOperator;
  return span_key(is_op, is_op ? slice.external_id : slice.python_id);
}

class ThreadStack {
 public:
  int64_t min_ns = 0;  // what is shorter counts as its caller's own time

  int32_t size() const { return static_cast<int32_t>(spans_.size()); }
  Span& operator[](int32_t i) { return spans_[static_cast<size_t>(i)]; }
  const Span& operator[](int32_t i) const { return spans_[static_cast<size_t>(i)]; }
  std::span<const Span> spans() const { return spans_; }  // outermost first
  int32_t top_python() const { return top_python_; }
  int32_t top_op() const { return top_op_; }

  void push(Span span);
  // Below the operators on top, which began inside of it: it begins with the lowest of them, if not before.
  void push_below_ops(Span frame);
  // Takes span `i` out; indices above it move down by one. The caller tells the spans below what it cost (add_child).
  Span take(int32_t i);
  // Index of the open operator with this key, or -1.
  int32_t find_op(uint64_t key) const;
  // Takes the module of span `i` over from the span below, unless it has one of its own.
  void inherit_module(int32_t i);
  // The nearest call of a module below span `i`, -1 if there is none.
  int32_t module_call_below(int32_t i) const;
  // Counts `ns` as spent inside the span of the same kind directly below `span`.
  void add_child(const Span& span, int64_t ns);
  // `span`, which was taken, took `ns`: for the spans below it. An asynchronous one is not around or inside of anything
  // but by chance: what ran inside it did so in the one below.
  void ended(const Span& span, int64_t ns) {
    if (ns < min_ns) return;
    add_child(span, span.is_async ? span.child_ns : ns);
    if (const int32_t below = span.below(); below >= 0) add_to((*this)[below].inside_ns, ns);
  }
  // What ran inside of span `i` so far ran directly inside of the one below.
  void leave_inside(int32_t i) {
    if (i > 0) add_to((*this)[i - 1].inside_ns, (*this)[i].inside_ns);
    (*this)[i].inside_ns = 0;
  }

 private:
  void relink(int32_t from);
  uint32_t& open_count(const Span& span);

  std::vector<Span> spans_;
  int32_t top_python_ = -1;
  int32_t top_op_ = -1;
  std::vector<uint32_t> open_[2];  // spans that are open by name: Python and C, operators
};

}  // namespace torchprof::formats
