#include "tracer/spool/cursor.h"

#include <array>
#include <cstring>

namespace torchprof {
namespace {

template <auto kSizeOf>
constexpr std::array<uint16_t, 256> sizes_by_kind() {
  std::array<uint16_t, 256> sizes{};
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = static_cast<uint16_t>(kSizeOf(static_cast<Kind>(i)));
  return sizes;
}

constexpr std::array<uint16_t, 256> kBytes = sizes_by_kind<fixed_size>();

template <class R>
std::string_view text_of(const std::byte* record, RecordHeader header, uint64_t length, bool& whole) {
  const Tail tail = tail_of<R>(header.bytes(), length);
  whole = tail.is_whole;
  return {reinterpret_cast<const char*>(record + tail.begin), tail.size};
}

static_assert(kSpoolVersion > 3 ||
                  (sizeof(StringDef) == kFirstBytes<StringDef> &&
                   sizeof(ObjectDetailDef) == kFirstBytes<ObjectDetailDef> &&
                   sizeof(LinesDef) == kFirstBytes<LinesDef> && sizeof(Restate) == kFirstBytes<Restate> &&
                   sizeof(ThreadStack) == kFirstBytes<ThreadStack>),
              "readers of version 3 look for a tail right after the struct that they know");

}  // namespace

[[gnu::weak]] extern constinit const std::array<uint16_t, 256> kLeastBytes = sizes_by_kind<first_size>();

std::string_view RecordView::text(bool& whole) const {
  return text_of<StringDef>(place_, header(), as<StringDef>().length, whole);
}

std::string_view RecordView::detail(bool& whole) const {
  return text_of<ObjectDetailDef>(place_, header(), as<ObjectDetailDef>().length, whole);
}

std::string_view RecordView::lines(bool& whole) const {
  return text_of<LinesDef>(place_, header(), as<LinesDef>().length, whole);
}

std::span<const uint64_t> RecordView::begins() const {
  const Tail tail = tail_of<Restate>(header().bytes(), uint64_t{as<Restate>().count} * sizeof(uint64_t));
  return {reinterpret_cast<const uint64_t*>(place_ + tail.begin), tail.size / sizeof(uint64_t)};
}

std::span<const StackFrame> RecordView::frames() const {
  const Tail tail = tail_of<ThreadStack>(header().bytes(), uint64_t{as<ThreadStack>().count} * sizeof(StackFrame));
  return {reinterpret_cast<const StackFrame*>(place_ + tail.begin), tail.size / sizeof(StackFrame)};
}

bool RecordCursor::next(RecordView& record) {
  while (at_ != end_) {
    RecordHeader header;
    std::memcpy(&header, at_, sizeof(header));
    const auto left = static_cast<uint64_t>(end_ - at_);
    if (ShortRecord::is_short(header.bits)) [[likely]] {
      const ShortRecord compact{header.bits};
      const uint64_t bytes = compact.words() * 8;
      if (bytes > left) [[unlikely]] {
        dropped_ += left;
        at_ = end_;
        return false;
      }
      const std::byte* data = at_;
      at_ += bytes;
      if (compact.long_kind() == Kind{}) [[unlikely]] {
        ++unknown_;
        continue;
      }
      record.data_ = nullptr;
      record.place_ = data;
      expand(data, last_op_, last_step_, record.room_.bytes);
      remember(record, compact.long_kind());
      return true;
    }
    const uint64_t bytes = header.bytes();
    const auto kind = static_cast<uint8_t>(header.kind());
    const uint64_t whole = kBytes[kind];
    // Kind 0 is never written, so this is damage, and the length cannot be trusted either.
    const bool is_too_short = bytes < whole && bytes < kLeastBytes[kind];
    if (bytes == 0 || bytes > left || kind == 0 || is_too_short) [[unlikely]] {
      dropped_ += left;
      at_ = end_;
      return false;
    }
    const std::byte* data = at_;
    at_ += bytes;
    if (whole == 0) [[unlikely]] {
      ++unknown_;
      continue;
    }
    record.place_ = record.data_ = data;
    if (bytes < whole) [[unlikely]] {
      record.data_ = nullptr;
      std::memcpy(record.room_.bytes, data, bytes);
      std::memset(record.room_.bytes + bytes, 0, whole - bytes);
    }
    remember(record, header.kind());
    return true;
  }
  return false;
}

void RecordCursor::remember(const RecordView& record, Kind kind) {
  if (kind == Kind::OpBegin) {
    const auto& op = record.as<OpBegin>();
    last_op_ = {op.handle, op.sequence};
  } else if (kind == Kind::StepEnd) {
    last_step_ = record.as<StepEnd>().step;
  }
}

}  // namespace torchprof
