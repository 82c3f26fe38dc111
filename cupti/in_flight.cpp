#include "cupti/in_flight.h"

#include <cstring>
#include <iterator>

#include "cupti/cupti_abi.h"
#include "cupti/wishes.h"

namespace torchprof::cupti {
namespace {

constexpr uint32_t kOpen = uint32_t{1} << 31;

template <class T>
T read(const std::byte* record, abi::Field field) noexcept {
  T value;
  std::memcpy(&value, record + field.at, sizeof(value));
  return value;
}

bool has_times(const std::byte* record, abi::Field start, abi::Field end) noexcept {
  const auto began = read<uint64_t>(record, start), ended = read<uint64_t>(record, end);
  return began != 0 && ended >= began;
}

bool is_whole(const std::byte* record, uint32_t kind) noexcept {
  switch (kind) {
    case abi::kConcurrentKernel:
      return has_times(record, abi::kernel::kStart, abi::kernel::kEnd);
    case abi::kMemcpy:
    case abi::kMemcpyPeer:
    case abi::kMemset:
      return has_times(record, abi::memcpy::kStart, abi::memcpy::kEnd);
    case abi::kRuntime:
    case abi::kDriver:
      return has_times(record, abi::api::kStart, abi::api::kEnd) && read<uint32_t>(record, abi::api::kCorrelation) != 0;
    default:
      return true;
  }
}

}  // namespace

uint32_t RecordSizes::of(const Api& api, uint32_t kind) noexcept {
  if (kind >= std::size(sizes_)) return 0;
  uint32_t& size = sizes_[kind];
  if (size == 0) {
    // Records of this kind wherever one may begin: CUPTI also looks at the one that it finds.
    alignas(8) std::byte copy[1024] = {};
    for (size_t i = 0; i < sizeof(copy); i += 8) std::memcpy(copy + i, &kind, sizeof(kind));
    std::byte* record = nullptr;
    const auto next = [&] {
      return api.next_record(reinterpret_cast<uint8_t*>(copy), sizeof(copy), &record) == abi::kSuccess;
    };
    const bool is_known = next() && record == copy && next() && record > copy && record < copy + sizeof(copy);
    size = is_known ? static_cast<uint32_t>(record - copy) : kUnknown;
  }
  return size == kUnknown ? 0 : size;
}

RecordInFlight look(const Api& api, RecordSizes& sizes, const std::byte* record, size_t room) noexcept {
  if (room < sizeof(uint32_t)) return {};
  // CUPTI writes it from another thread. Pairs with its write of the kind, which is its last of a record.
  const uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(record), __ATOMIC_ACQUIRE);
  const uint32_t kind = word & ~kOpen;
  const uint32_t bytes = kind == 0 ? 0 : sizes.of(api, kind);
  if (bytes == 0 || bytes > room) return {};
  const bool is_open = (word & kOpen) != 0;
  return {kind, bytes, is_open, !is_open && is_whole(record, kind)};
}

OpenWork open_work(const std::byte* record, const RecordInFlight& what) noexcept {
  const Brief known = brief_of(record, what.bytes, what.kind);
  OpenWork work{what.kind, 0, 0, 0, known.correlation, nullptr, 1};
  const auto place = [&](abi::Field device, abi::Field context, abi::Field stream) {
    work.device = read<uint32_t>(record, device);
    work.context = read<uint32_t>(record, context);
    work.stream = read<uint32_t>(record, stream);
  };
  if (what.kind == abi::kConcurrentKernel) {
    place(abi::kernel::kDevice, abi::kernel::kContext, abi::kernel::kStream);
    work.name = read<const char*>(record, abi::kernel::kName);
  } else {
    place(abi::memcpy::kDevice, abi::memcpy::kContext, abi::memcpy::kStream);
  }
  return work;
}

void OpenStreams::saw(const OpenWork& work) noexcept {
  for (size_t i = 0; i < count_; ++i) {
    OpenWork& known = work_[i];
    if (known.context != work.context || known.stream != work.stream) continue;
    const uint32_t launched = known.launched + 1;
    if (static_cast<int32_t>(work.correlation - known.correlation) < 0) known = work;
    known.launched = launched;
    return;
  }
  if (count_ < kMost) work_[count_++] = work;
}

}  // namespace torchprof::cupti
