#include "tracer/spool/cursor.h"

#include <array>
#include <cstring>

namespace torchprof {
namespace {

constexpr std::array<uint64_t, 256> kFixedSize = [] {
  std::array<uint64_t, 256> sizes{};
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = fixed_size(static_cast<Kind>(i));
  return sizes;
}();

std::string_view rest(const std::byte* data, uint64_t bytes, uint64_t fixed, uint32_t length, bool& whole) {
  const uint64_t room = bytes - fixed;
  whole = length <= room;
  return {reinterpret_cast<const char*>(data + fixed), whole ? length : room};
}

}  // namespace

std::string_view RecordView::text(bool& whole) const {
  return rest(data_, header().bytes(), sizeof(StringDef), as<StringDef>().length, whole);
}

std::string_view RecordView::detail(bool& whole) const {
  return rest(data_, header().bytes(), sizeof(ObjectDetailDef), as<ObjectDetailDef>().length, whole);
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
      expand(data, last_op_, last_step_, record.expanded_);
      remember(record, compact.long_kind());
      return true;
    }
    const uint64_t bytes = header.bytes();
    const auto kind = static_cast<uint8_t>(header.kind());
    const uint64_t fixed = kFixedSize[kind];
    // Kind 0 is never written, so this is damage, and the length cannot be trusted either.
    if (bytes == 0 || bytes > left || kind == 0 || bytes < fixed) [[unlikely]] {
      dropped_ += left;
      at_ = end_;
      return false;
    }
    const std::byte* data = at_;
    at_ += bytes;
    if (fixed == 0) [[unlikely]] {
      ++unknown_;
      continue;
    }
    record.data_ = data;
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
