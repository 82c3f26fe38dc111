// Walks the records of a chunk, in the process that records and in the one that reads. No byte is trusted; nothing is
// allocated, nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof {

// One whole record: at least `fixed_size(kind)` bytes are there. Short records appear in their long form.
class RecordView {
 public:
  RecordHeader header() const { return *reinterpret_cast<const RecordHeader*>(data()); }
  Kind kind() const { return header().kind(); }
  Ticks time(const ClockSample& base) const { return {base.ticks.value + header().time()}; }
  template <class R>
  const R& as() const {  // only if kind() is that of R
    return *reinterpret_cast<const R*>(data());
  }
  // The text of a StringDef; cut to the record if `length` says more (then `whole` is false).
  std::string_view text(bool& whole) const;
  // What follows an ObjectDetailDef, likewise.
  std::string_view detail(bool& whole) const;

 private:
  friend class RecordCursor;
  const std::byte* data() const { return data_ != nullptr ? data_ : expanded_; }
  const std::byte* data_ = nullptr;  // in the mapping; nullptr: a short record, expanded here
  alignas(8) std::byte expanded_[kMaxExpanded] = {};
};

// Walks the whole records of one chunk.
class RecordCursor {
 public:
  // `last`: the operator before these records, if they are not the first of their chunk; `last_step` likewise.
  explicit RecordCursor(std::span<const std::byte> records, const LastOp& last = {}, uint64_t last_step = 0)
      : last_op_(last), last_step_(last_step), at_(records.data()), end_(at_ + records.size()) {}
  // False at the end or at damage. Records of unknown kinds are passed over.
  bool next(RecordView& record);
  // The next record, if it is a short one of one word (TORCHPROF_SHORT_RECORDS); most are, and this is much cheaper
  // than next().
  bool next_plain(ShortRecord& record) {
    if (end_ - at_ < static_cast<ptrdiff_t>(sizeof(record))) return false;
    std::memcpy(&record, at_, sizeof(record));
    if (!is_plain(record.kind())) return false;
    at_ += sizeof(record);
    return true;
  }
  // Hands word after word to `take` as long as it returns true; it must do so only for a word that is a whole record.
  template <class Take>
  void take_words(Take take) {
    const std::byte* at = at_;
    for (ShortRecord record; end_ - at >= static_cast<ptrdiff_t>(sizeof(record)); at += sizeof(record)) {
      std::memcpy(&record, at, sizeof(record));
      if (!take(record)) break;
    }
    at_ = at;
  }
  std::span<const std::byte> rest() const { return {at_, end_}; }
  void skip_words(size_t words) { at_ += words * sizeof(uint64_t); }  // they must be whole records of rest()
  uint64_t dropped_bytes() const { return dropped_; }                 // lost to damage, once next() returned false
  uint64_t unknown_records() const { return unknown_; }
  const LastOp& last_op() const { return last_op_; }

 private:
  static constexpr bool is_plain(uint8_t kind) {
    switch (kind) {
#define X(number, name) case number:
      TORCHPROF_SHORT_RECORDS(X)
#undef X
      return true;
      default:
        return false;
    }
  }
  void remember(const RecordView& record, Kind kind);

  LastOp last_op_;
  uint64_t last_step_;
  const std::byte* at_;
  const std::byte* end_;
  uint64_t dropped_ = 0;
  uint64_t unknown_ = 0;
};

}  // namespace torchprof
