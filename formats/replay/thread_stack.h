// The open spans of one thread, in the order in which they began (outermost at the bottom). Any of them may end first.
//
// Self time goes to the span of a kind that began last of those that are open. So of two that cross, the time of both
// is that of the later one, nothing counts twice, and the self times of a thread add up to the time in which anything
// of the kind was open. Where a span is drawn does not matter for that (`is_apart`).
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
  bool outermost = false;  // of those with its name that are open on the thread; those above follow when it ends
  bool is_apart = false;   // an operator that crosses others, so that it is drawn on a row of its own
  bool is_judged = false;  // `helper` is known
  OpScope scope{};
  NameId name{};
  FunctionId function{};
  ObjectId object{};
  // The innermost call of an nn.Module around the span, or the span itself; for a backward operator and all inside it
  // the module of the forward operator. Unless `has_own_module`, it is the module of the span below.
  ObjectId module{};
  bool is_backward = false;
  // A call of a module that a backward makes, to compute again what it needs, and all inside it but its own backward.
  bool is_recompute = false;
  bool is_in_backward = false;  // in a function of the autograd engine, at any depth
  bool is_engine = false;       // it is one
  bool has_own_module = false;
  bool is_module_call = false;
  int64_t module_child_ns = 0;          // for a module's call: ended calls of other modules directly inside
  NameId line{};                        // as in Slice
  bool is_function_of_program = false;  // one that has lines
  CallSiteId site{};
  uint32_t generation = 0;
  int64_t collected = 0;
  int64_t uncollectable = 0;
  int64_t begin = 0;         // ns, UnixNs; where it is drawn from
  int64_t cut = 0;           // by so much it began before `begin`: there a range ended in it, of which it is a helper
  int64_t first_work = 0;    // ns, begin of the span directly inside in which work first began (step_tracker.h)
  int64_t child_ns = 0;      // time of spans of the same kind directly inside, so far as they have ended
  int64_t counts_from = 0;   // from here on its time is that of a child of the operator below
  int64_t calls_ns = 0;      // of an operator: of calls of CUDA directly inside
  int64_t recompute_ns = 0;  // of an operator: of its self time, in calls of modules that it makes to compute again
  uint64_t id = 0;           // python_id or external_id
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
  const InductorKernel* inductor = nullptr;
  NameId outer_op{};  // name of the outermost operator around it or the span itself, without annotations
  // Indices of the nearest spans below: a Python frame or C call, and an operator; -1: none.
  int32_t below_python = -1;
  int32_t below_op = -1;
  int64_t inside_ns = 0;    // of ended spans of any kind that are drawn directly inside
  int64_t op_child_ns = 0;  // child_ns of the nearest operator below that nests, when this span began
  uint64_t helper = 0;      // of a range: id of the outermost frame that helps to begin it; 0: none

  int32_t below() const { return std::max(below_python, below_op); }
  int64_t recorded_begin() const { return begin - cut; }
  bool is_op() const { return kind == SliceKind::kOperator; }
  // An operator that is not an annotation.
  bool is_real_op() const { return is_op() && !is_annotation(scope); }
};

// A key that a span shares with the slice that it becomes; unique among the spans of a process that have an id.
inline uint64_t span_key(bool is_op, uint64_t id) { return id << 1 | uint64_t{is_op}; }
inline uint64_t span_key(const Span& span) { return span_key(span.is_op(), span.id); }
inline uint64_t span_key(const Slice& slice) {
  const bool is_op = slice.kind == SliceKind::kOperator;
  return span_key(is_op, is_op ? slice.external_id : slice.python_id);
}

class ThreadStack {
 public:
  int64_t min_ns = 0;  // the time of shorter spans counts as their caller's self time

  int32_t size() const { return static_cast<int32_t>(spans_.size()); }
  Span& operator[](int32_t i) { return spans_[static_cast<size_t>(i)]; }
  const Span& operator[](int32_t i) const { return spans_[static_cast<size_t>(i)]; }
  std::span<const Span> spans() const { return spans_; }  // outermost first
  // The line of the program that led to the innermost span and still holds. None: not known; also where a function of
  // the program is the innermost span, since that may have gone on.
  NameId line() const { return spans_.empty() || spans_.back().is_function_of_program ? NameId{} : spans_.back().line; }
  int32_t top_python() const { return top_python_; }
  int32_t top_op() const { return top_op_; }
  // Asynchronous operators are around others only by chance, so nesting leaves them out: index of the operator `i`, or
  // of the nearest below it that nests; -1: none.
  int32_t nesting_op(int32_t i) const {
    while (i >= 0 && (*this)[i].is_async) i = (*this)[i].below_op;
    return i;
  }
  int32_t innermost_op() const { return nesting_op(top_op_); }
  int32_t op_around(int32_t i) const { return nesting_op((*this)[i].below_op); }

  void push(const Span& span);
  // Pushes a frame below the operators on top, which began inside it: it begins with the lowest of them, or earlier.
  void push_below_ops(Span frame);
  // Takes span `i` out; indices above it move down by one. The caller adds its time to the spans below (ended()).
  Span take(int32_t i);
  // Index of the open operator with this key; -1: none.
  int32_t find_op(uint64_t key) const;
  // Gives span `i` the module of the span below, unless it has one of its own.
  void inherit_module(int32_t i);
  // Index of the nearest call of a module below span `i`; -1: none.
  int32_t module_call_below(int32_t i) const;
  // A call of CUDA was made on top of all that is open: adds its time to the operator in which it is directly.
  void add_call(int64_t ns);
  // Operator `i` ends at `t`, below others that are open: their time up to now was inside of it.
  void pass(int32_t i, int64_t t);
  // `span` was taken, ended at `end`, and is drawn up to `drawn_end`: adds its time to the spans below.
  void ended(const Span& span, int64_t end, int64_t drawn_end);
  // The call of a module `i` is about to end after `ns`: what it computes again is no time of the backward's own.
  void recomputed(int32_t i, int64_t ns);
  // Counts what ran inside span `i` so far as run directly inside the span below.
  void leave_inside(int32_t i);
  // Draws operator `i` on a row of its own from now on.
  void set_apart(int32_t i);

  // As if those apart were not there: how many spans are below index `i`, and the one with so many below it.
  int32_t on_row(int32_t i) const;
  Span& nth_on_row(int32_t n) { return (*this)[index_on_row(n)]; }
  const Span& nth_on_row(int32_t n) const { return (*this)[index_on_row(n)]; }

 private:
  int32_t index_on_row(int32_t n) const;
  // Nearest span below index `i` that is drawn on the thread's row; -1: none.
  int32_t drawn_below(int32_t i) const;
  void relink(int32_t from);
  uint32_t& open_count(const Span& span);

  std::vector<Span> spans_;
  int32_t top_python_ = -1;
  int32_t top_op_ = -1;
  int32_t apart_ = 0;              // how many are
  std::vector<uint32_t> open_[2];  // how many are open by name: Python and C calls, operators
};

}  // namespace torchprof::formats
