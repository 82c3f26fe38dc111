// The spans that are open on one thread, from its records alone: what a chunk restates at its beginning when the ones
// before it may be gone (--keep last), and what `torchprof where` shows.
//
// The same code serves both, so it is as careful as the reader (any bytes may come) and as cheap as the recorder: no
// allocation, a fixed size, a few nanoseconds per record. An object belongs to one thread.
//
// Ends find their begins as formats/replay/replay.h says; spans beyond kMost are only counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tracer/spool/cursor.h"

namespace torchprof {

class OpenSpans {
 public:
  static constexpr size_t kMost = 512;

  struct Span {
    Kind kind;  // PythonFrame, CCallBegin, CCallBeginAt or OpBegin
    FunctionId function;
    ObjectId object;
    StringId call;    // of CCallBegin
    CallSiteId site;  // of CCallBeginAt
    Ticks begin;
    OpBegin op;  // of an operator; its header is not used
  };

  // Takes the records of one chunk. `is_next`: it follows the last chunk, so what it restates is known already.
  void fold(std::span<const std::byte> records, const ClockSample& base, bool is_next) noexcept;

  static bool is_c_call(const Span& span) noexcept {
    return span.kind == Kind::CCallBegin || span.kind == Kind::CCallBeginAt;
  }
  // The record that states `span` at the beginning of a chunk; the bytes written, at most kMaxExpanded.
  static size_t write(const Span& span, std::byte* out) noexcept;

  // Outermost first.
  std::span<const Span> spans() const noexcept { return {spans_, count_}; }
  uint64_t deeper() const noexcept { return deeper_; }  // open Python calls beyond the kMost that are held
  bool has_ended() const noexcept { return has_ended_; }
  Ticks last() const noexcept { return last_; }  // of the last record

 private:
  void add(const RecordView& record, Ticks time) noexcept;
  // Takes begins and ends of Python functions, as long as they match. They are most of what a chunk holds, in an order
  // that no branch predictor can guess: so both run the same code, and only what is open after them becomes a span.
  void fold_calls(RecordCursor& cursor, const ClockSample& base) noexcept;
  // Takes a whole row of them at once (call_run.h). False: it took none.
  bool fold_run(RecordCursor& cursor, const ClockSample& base) noexcept;
  void push_call(ShortRecord record, const ClockSample& base) noexcept;  // only while there is room
  bool ends_last(ShortRecord record) noexcept;                           // if it does, the last span is removed
  void add_plain(ShortRecord record, Ticks time) noexcept;
  Span* push(Kind kind, Ticks begin) noexcept;  // nullptr: there is no room
  void take(size_t i) noexcept;
  void end_python(FunctionId function) noexcept;
  void end_c_call() noexcept;
  template <class Is>
  void end_op(Is is) noexcept;
  void end_op_here(uint32_t low_key) noexcept;

  Span spans_[kMost];
  uint64_t calls_[kMost + 2];  // of fold_calls: short PythonBegin records that have not ended, from index 1 on
  size_t count_ = 0;
  uint64_t deeper_ = 0;
  bool has_ended_ = false;
  Ticks last_{};
};

}  // namespace torchprof
