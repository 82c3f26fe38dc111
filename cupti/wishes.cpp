#include "cupti/wishes.h"

#include <algorithm>
#include <cstring>

#include "cupti/cupti_abi.h"

namespace torchprof::cupti {
namespace {

using abi::Field;

struct Layout {
  uint32_t kind;
  Field start, correlation;
  enum : uint8_t { kOther, kCall, kLaunched } what;
};
constexpr Field kNone{0};
constexpr Layout kLayouts[] = {
    {abi::kRuntime, abi::api::kStart, abi::api::kCorrelation, Layout::kCall},
    {abi::kDriver, abi::api::kStart, abi::api::kCorrelation, Layout::kCall},
    {abi::kConcurrentKernel, abi::kernel::kStart, abi::kernel::kCorrelation, Layout::kLaunched},
    {abi::kMemcpy, abi::memcpy::kStart, abi::memcpy::kCorrelation, Layout::kLaunched},
    {abi::kMemcpyPeer, abi::memcpy::kStart, abi::peer::kCorrelation, Layout::kLaunched},
    {abi::kMemset, abi::memset::kStart, abi::memset::kCorrelation, Layout::kLaunched},
    {abi::kCudaEvent, kNone, abi::event::kCorrelation, Layout::kLaunched},
    {abi::kSynchronization, abi::sync::kStart, abi::sync::kCorrelation, Layout::kOther},
    {abi::kOverhead, abi::overhead::kStart, kNone, Layout::kOther},
    {abi::kMemory2, abi::memory::kTime, abi::memory::kCorrelation, Layout::kOther},
    {abi::kMemoryPool, abi::pool::kTime, abi::pool::kCorrelation, Layout::kOther},
    {abi::kEnvironment, abi::environment::kTime, kNone, Layout::kOther},
};

template <class T>
T read(const std::byte* record, size_t room, Field field) noexcept {
  T value{};
  if (field.at != 0 && field.at + sizeof(T) <= room) std::memcpy(&value, record + field.at, sizeof(T));
  return value;
}

// For numbers that count up and may wrap around.
bool is_before(uint32_t a, uint32_t b) noexcept { return static_cast<int32_t>(a - b) < 0; }

}  // namespace

Brief brief(const std::byte* record, size_t room) noexcept {
  uint32_t kind = 0;
  if (room < sizeof(kind)) return {};
  std::memcpy(&kind, record, sizeof(kind));
  return brief_of(record, room, kind);
}

Brief brief_of(const std::byte* record, size_t room, uint32_t kind) noexcept {
  Brief result;
  result.kind = kind;
  for (const Layout& layout : kLayouts) {
    if (layout.kind != result.kind) continue;
    result.start = read<uint64_t>(record, room, layout.start);
    result.correlation = read<uint32_t>(record, room, layout.correlation);
    if (layout.what == Layout::kCall) result.cbid = read<uint32_t>(record, room, abi::api::kCbid);
    result.is_call = layout.what == Layout::kCall;
    result.is_launched = layout.what == Layout::kLaunched;
  }
  return result;
}

void Wishes::change(Party party, uint64_t kinds, uint64_t time) noexcept {
  if (count_ == kMost) {
    constexpr size_t kKept = kMost / 2;
    std::move(turns_ + kMost - kKept, turns_ + kMost, turns_);
    count_ = kKept;
  }
  Turn next{time, {}, 0, 0, false};
  if (count_ != 0) {
    const Turn& last = turns_[count_ - 1];
    next.kinds[0] = last.kinds[0], next.kinds[1] = last.kinds[1];
    next.since = std::max(time, last.since);
  }
  next.kinds[party - 1] = kinds;
  ever_[party - 1] |= kinds;
  turns_[count_++] = next;
}

// The turn in which a time lies; the oldest for a time before all of them.
size_t Wishes::at(uint64_t time) const noexcept {
  size_t i = count_ - 1;
  while (i > 0 && turns_[i].since > time) --i;
  return i;
}

void Wishes::saw(const Brief& call) noexcept {
  if (count_ == 0 || call.start == 0) return;
  Turn& turn = turns_[at(call.start)];
  if (!turn.has_calls || is_before(call.correlation, turn.first)) turn.first = call.correlation;
  if (!turn.has_calls || is_before(turn.last, call.correlation)) turn.last = call.correlation;
  turn.has_calls = true;
}

// The turn in which a record was launched. Known from calls: not before the last turn whose calls begin at a lower
// correlation, and before the first turn whose calls begin at a higher one. Between those two it is the turn in which
// the record ran, or the last one before it in which calls were not recorded: otherwise its call would have been seen.
size_t Wishes::launched_at(const Brief& record) const noexcept {
  size_t highest = record.start == 0 ? count_ - 1 : at(record.start);
  bool is_bounded = false;
  for (size_t i = count_; i-- > 0;) {
    const Turn& turn = turns_[i];
    if (!turn.has_calls) continue;
    if (is_before(record.correlation, turn.first)) {
      is_bounded = true;
      highest = std::min(highest, i == 0 ? 0 : i - 1);
      continue;
    }
    if (!is_before(turn.last, record.correlation)) return i;
    constexpr uint64_t kCalls = kind_bit(abi::kRuntime) | kind_bit(abi::kDriver);
    while (is_bounded && highest > i && ((turns_[highest].kinds[0] | turns_[highest].kinds[1]) & kCalls) != 0)
      --highest;
    return std::max(i, highest);
  }
  return highest;
}

uint8_t Wishes::parties(const Brief& record) const noexcept {
  if (count_ == 0) return kOurs;
  const uint64_t bit = kind_bit(record.kind);
  const uint64_t* kinds = ever_;
  if (record.is_launched && record.correlation != 0)
    kinds = turns_[launched_at(record)].kinds;
  else if (record.start != 0)
    kinds = turns_[at(record.start)].kinds;
  const auto api = record.kind == abi::kRuntime ? GpuApiKind::kRuntime : GpuApiKind::kDriver;
  bool wants[2] = {(kinds[0] & bit) != 0, (kinds[1] & bit) != 0};
  if (record.is_call && is_listed_ && !is_recorded_call(api, record.cbid)) wants[0] = false;
  if (record.is_call && !other_wants(api, record.cbid)) wants[1] = false;
  if (record.is_call && other_asked(api, record.cbid)) wants[1] = true;
  return static_cast<uint8_t>((wants[0] ? kOurs : 0) | (wants[1] ? kTheirs : 0));
}

}  // namespace torchprof::cupti
