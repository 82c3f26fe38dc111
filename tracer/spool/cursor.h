// Walks the records of a chunk, in a process that records as well as in one that reads: nothing is trusted, nothing is
// allocated, nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof {

// One whole record: `fixed_size(kind)` bytes at least are there. Short records are seen in their long form.
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
  explicit RecordCursor(std::span<const std::byte> records) : at_(records.data()), end_(at_ + records.size()) {}
  // False at the end or at damage. Records of unknown kinds are passed over.
  bool next(RecordView& record);
  // The next record if it is one word that says all (TORCHPROF_SHORT_RECORDS): much cheaper than next() for the many
  // that are.
  bool next_plain(ShortRecord& record) {
    if (end_ - at_ < static_cast<ptrdiff_t>(sizeof(record))) return false;
    std::memcpy(&record, at_, sizeof(record));
    if (!is_plain(record.kind())) return false;
    at_ += sizeof(record);
    return true;
  }
  // Words in a row, as long as `take` returns true for them: only for those that are whole records.
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
  void skip_words(size_t words) { at_ += words * sizeof(uint64_t); }  // of rest(), and whole records
  uint64_t dropped_bytes() const { return dropped_; }                 // after next() returned false: what damage cost
  uint64_t unknown_records() const { return unknown_; }

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
  void remember(const RecordView& record);

  LastOp last_op_;
  const std::byte* at_;
  const std::byte* end_;
  uint64_t dropped_ = 0;
  uint64_t unknown_ = 0;
};

}  // namespace torchprof
