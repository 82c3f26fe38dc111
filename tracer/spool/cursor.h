// Walks the records of a chunk, in the process that records and in the one that reads. No byte is trusted; nothing is
// allocated, nothing throws.
//
// A record of an older version may be shorter than the struct that this build knows (record.h). It is then copied to
// where the rest is zero; any other stays in the chunk. No byte after a record is read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof {

// Bytes that a record of each kind has at least; one with fewer is damage. 0: a kind that this build does not know.
// They are first_size() of record.h; a test of what older versions wrote links smaller ones in their place.
extern const std::array<uint16_t, 256> kLeastBytes;

// Room for a record of any kind.
struct RecordRoom {
  alignas(8) std::byte bytes[kLargestRecord];
};

// The record at the beginning of `from`, which has at least kLeastBytes of its kind, as all of an R: it lies there, or
// in `room` if it is shorter than R.
template <class R>
const R& whole_record(std::span<const std::byte> from, RecordRoom& room) {
  const uint64_t bytes = std::min<uint64_t>(reinterpret_cast<const RecordHeader*>(from.data())->bytes(), from.size());
  if (bytes >= sizeof(R)) [[likely]]
    return *reinterpret_cast<const R*>(from.data());
  std::memcpy(room.bytes, from.data(), bytes);
  std::memset(room.bytes + bytes, 0, sizeof(R) - bytes);
  return *reinterpret_cast<const R*>(room.bytes);
}

// One whole record: all of its struct is there, whatever its writer knew of it. Short records appear in their long
// form.
class RecordView {
 public:
  RecordHeader header() const { return *reinterpret_cast<const RecordHeader*>(data()); }  // with the length written
  Kind kind() const { return header().kind(); }
  Ticks time(const ClockSample& base) const { return {base.ticks.value + header().time()}; }
  template <class R>
  const R& as() const {  // only if kind() is that of R; until the cursor moves on
    return *reinterpret_cast<const R*>(data());
  }
  const std::byte* place() const { return place_; }  // of the record in its chunk, whatever its form
  // The text of a StringDef; cut to the record if `length` says more (then `whole` is false).
  std::string_view text(bool& whole) const;
  // What follows an ObjectDetailDef, likewise.
  std::string_view detail(bool& whole) const;
  // The pairs of a LinesDef, likewise.
  std::string_view lines(bool& whole) const;
  // Of a Restate: when each of the spans began that the next records restate, in ticks; no more than the record has.
  std::span<const uint64_t> begins() const;
  // Of a ThreadStack: its frames; no more than the record has.
  std::span<const StackFrame> frames() const;

 private:
  friend class RecordCursor;
  const std::byte* data() const { return data_ != nullptr ? data_ : room_.bytes; }
  const std::byte* data_ = nullptr;  // in the mapping; nullptr: in the room, expanded or with zeros after it
  const std::byte* place_ = nullptr;
  RecordRoom room_{};
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
