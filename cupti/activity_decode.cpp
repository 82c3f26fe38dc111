#include "cupti/activity_decode.h"

#include <iterator>
#include <new>

#include "cupti/cupti_abi.h"

namespace torchprof::cupti {
namespace {

using abi::Field;

// CUPTI_SYNCHRONIZATION_INVALID_VALUE and CUPTI_INVALID_STREAM_ID are the same number as kNoGpuNumber.
static_assert(kNoGpuNumber == UINT32_MAX);

class Fields {
 public:
  Fields(const std::byte* record, size_t room, uint32_t version) noexcept
      : record_(record), room_(room), version_(version) {}

  template <class T>
  bool has(Field field) const noexcept {
    return version_ >= field.since && field.at + sizeof(T) <= room_;
  }
  // 0 where this CUPTI has no such field.
  template <class T>
  T get(Field field) const noexcept {
    T value{};
    if (has<T>(field)) memcpy(&value, record_ + field.at, sizeof(T));
    return value;
  }
  template <class T>
  void read(Field field, T& out) const noexcept {
    out = get<T>(field);
  }
  // As `out`, narrowed from CUPTI's 32 bits.
  template <class T>
  void read_narrow(Field field, T& out) const noexcept {
    out = static_cast<T>(get<uint32_t>(field));
  }

 private:
  const std::byte* record_;
  size_t room_;
  uint32_t version_;
};

template <class R>
R& make(Decoded& out) noexcept {
  static_assert(sizeof(R) <= sizeof(out.record));
  out.kind = kKindOf<R>;
  out.bytes = sizeof(R);
  out.name = nullptr;
  return *new (out.record) R{};
}

void decode_kernel(const Fields& f, Decoded& out) noexcept {
  using namespace abi::kernel;
  auto& r = make<GpuKernel>(out);
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kQueued, r.queued);
  f.read(kSubmitted, r.submitted);
  f.read(kGraphNode, r.graph_node);
  f.read(kCorrelation, r.correlation);
  f.read(kGraph, r.graph);
  f.read(kDevice, r.device);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  for (uint16_t i = 0; i < 3; ++i) {
    f.read({static_cast<uint16_t>(kGrid.at + 4 * i)}, r.grid[i]);
    f.read({static_cast<uint16_t>(kBlock.at + 4 * i)}, r.block[i]);
  }
  f.read(kStaticShared, r.static_shared);
  f.read(kDynamicShared, r.dynamic_shared);
  f.read(kSharedExecuted, r.shared_executed);
  f.read(kLocalPerThread, r.local_per_thread);
  f.read(kRegisters, r.registers);
  f.read(kLaunchType, r.launch_type);
  f.read(kChannel, r.channel);
  f.read_narrow(kChannelType, r.channel_type);
  f.read(kPriority, r.priority);
  r.has_priority = f.has<int32_t>(kPriority);
  out.name = f.get<const char*>(kName);
}

void decode_copy(const Fields& f, bool is_peer, Decoded& out) noexcept {
  using namespace abi::memcpy;
  namespace peer = abi::peer;
  auto& r = make<GpuCopy>(out);
  f.read(kCopyKind, r.copy_kind);
  f.read(kSrcKind, r.src_kind);
  f.read(kDstKind, r.dst_kind);
  f.read(kFlags, r.flags);
  f.read(kBytes, r.bytes);
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kDevice, r.device);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  f.read(is_peer ? peer::kCorrelation : kCorrelation, r.correlation);
  f.read(is_peer ? peer::kGraphNode : kGraphNode, r.graph_node);
  f.read(is_peer ? peer::kGraph : kGraph, r.graph);
  f.read(is_peer ? peer::kChannel : kChannel, r.channel);
  f.read_narrow(is_peer ? peer::kChannelType : kChannelType, r.channel_type);
  r.is_peer = is_peer;
  r.src_device = r.src_context = r.dst_device = r.dst_context = kNoGpuNumber;
  if (!is_peer) return;
  f.read(peer::kSrcDevice, r.src_device);
  f.read(peer::kSrcContext, r.src_context);
  f.read(peer::kDstDevice, r.dst_device);
  f.read(peer::kDstContext, r.dst_context);
}

void decode_set(const Fields& f, Decoded& out) noexcept {
  using namespace abi::memset;
  auto& r = make<GpuSet>(out);
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kBytes, r.bytes);
  f.read(kGraphNode, r.graph_node);
  f.read(kCorrelation, r.correlation);
  f.read(kGraph, r.graph);
  f.read(kDevice, r.device);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  f.read(kValue, r.value);
  f.read(kMemoryKind, r.memory_kind);
  r.flags = static_cast<uint8_t>(f.get<uint16_t>(kFlags));
  f.read(kChannel, r.channel);
  f.read_narrow(kChannelType, r.channel_type);
}

void decode_api(const Fields& f, GpuApiKind api, Decoded& out) noexcept {
  using namespace abi::api;
  auto& r = make<GpuApi>(out);
  const auto cbid = f.get<uint32_t>(kCbid);
  r.cbid = static_cast<uint16_t>(cbid < UINT16_MAX ? cbid : UINT16_MAX);
  r.api = api;
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kThread, r.thread);
  f.read(kCorrelation, r.correlation);
  f.read(kResult, r.result);
}

void decode_sync(const Fields& f, Decoded& out) noexcept {
  using namespace abi::sync;
  auto& r = make<GpuSync>(out);
  f.read_narrow(kType, r.type);
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kCorrelation, r.correlation);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  f.read(kEvent, r.event);
  f.read(kEventRecord, r.event_record);
  f.read(kResult, r.result);
}

void decode_event(const Fields& f, Decoded& out) noexcept {
  using namespace abi::event;
  auto& r = make<GpuEvent>(out);
  f.read(kCorrelation, r.correlation);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  f.read(kEvent, r.event);
  f.read(kDeviceTime, r.device_time);
  f.read(kEventRecord, r.event_record);
}

void decode_overhead(const Fields& f, Decoded& out) noexcept {
  using namespace abi::overhead;
  auto& r = make<GpuOverhead>(out);
  f.read(kOverheadKind, r.kind);
  f.read_narrow(kObjectKind, r.object_kind);
  f.read(kStart, r.start);
  f.read(kEnd, r.end);
  f.read(kCorrelation, r.correlation);
  const auto number = [&f](uint16_t i) { return f.get<uint32_t>({static_cast<uint16_t>(kObject.at + 4 * i)}); };
  if (r.object_kind == kOfProcess || r.object_kind == kOfThread) {
    r.process_or_context = number(0);
    r.object = number(1);
    r.device = kNoGpuNumber;
  } else {
    r.device = number(0);
    r.process_or_context = number(1);
    r.object = number(2);
  }
}

void decode_memory(const Fields& f, Decoded& out) noexcept {
  using namespace abi::memory;
  auto& r = make<GpuMemory>(out);
  f.read_narrow(kOperation, r.operation);
  f.read_narrow(kMemoryKind, r.kind);
  f.read(kCorrelation, r.correlation);
  f.read(kAddress, r.address);
  f.read(kBytes, r.bytes);
  f.read(kTime, r.time);
  f.read(kDevice, r.device);
  f.read(kContext, r.context);
  f.read(kStream, r.stream);
  r.is_async = f.get<uint32_t>(kIsAsync) != 0;
}

void decode_pool(const Fields& f, Decoded& out) noexcept {
  using namespace abi::pool;
  auto& r = make<GpuMemoryPool>(out);
  f.read(kTime, r.time);
  f.read(kAddress, r.address);
  f.read(kBytes, r.bytes);
  f.read(kUsed, r.used);
  f.read(kThreshold, r.threshold);
  f.read(kCorrelation, r.correlation);
  f.read(kDevice, r.device);
  f.read_narrow(kOperation, r.operation);
  f.read_narrow(kPoolType, r.type);
}

void decode_environment(const Fields& f, Decoded& out) noexcept {
  using namespace abi::environment;
  constexpr uint32_t kNumbers[] = {0, 5, 1, 2, 1};  // numbers of each kind; the rest of the union means nothing
  auto& r = make<GpuEnvironment>(out);
  f.read(kTime, r.time);
  f.read(kDevice, r.device);
  f.read(kEnvironmentKind, r.kind);
  const uint32_t count = r.kind < std::size(kNumbers) ? kNumbers[r.kind] : 0;
  for (uint16_t i = 0; i < count; ++i) f.read({static_cast<uint16_t>(kValues.at + 4 * i)}, r.values[i]);
}

void decode_device(const Fields& f, Decoded& out) noexcept {
  using namespace abi::device;
  auto& r = make<GpuDeviceDef>(out);
  f.read(kId, r.device);
  f.read(kMemory, r.memory);
  f.read(kBandwidth, r.bandwidth);
  f.read(kMajor, r.major);
  f.read(kMinor, r.minor);
  f.read(kMultiprocessors, r.multiprocessors);
  f.read(kWarp, r.warp_size);
  f.read(kThreadsOfBlock, r.threads_per_block);
  f.read(kWarps, r.warps_per_multiprocessor);
  f.read(kBlocks, r.blocks_per_multiprocessor);
  f.read(kRegistersOfBlock, r.registers_per_block);
  f.read(kRegistersOfMultiprocessor, r.registers_per_multiprocessor);
  f.read(kSharedOfBlock, r.shared_per_block);
  f.read(kSharedOfMultiprocessor, r.shared_per_multiprocessor);
  f.read(kL2, r.l2_bytes);
  f.read(kClock, r.core_khz);
  out.name = f.get<const char*>(kName);
}

void decode_context(const Fields& f, Decoded& out) noexcept {
  using namespace abi::context;
  auto& r = make<GpuContextDef>(out);
  f.read(kContext, r.context);
  f.read(kDevice, r.device);
  r.default_stream = f.get<uint16_t>(kDefaultStream);
}

size_t least_size(uint32_t kind) noexcept {
  switch (kind) {
    case abi::kConcurrentKernel:
      return abi::kernel::kSize;
    case abi::kMemcpy:
      return abi::memcpy::kSize;
    case abi::kMemcpyPeer:
      return abi::peer::kSize;
    case abi::kMemset:
      return abi::memset::kSize;
    case abi::kDriver:
    case abi::kRuntime:
      return abi::api::kSize;
    case abi::kSynchronization:
      return abi::sync::kSize;
    case abi::kCudaEvent:
      return abi::event::kSize;
    case abi::kOverhead:
      return abi::overhead::kSize;
    case abi::kMemory2:
      return abi::memory::kSize;
    case abi::kMemoryPool:
      return abi::pool::kSize;
    case abi::kEnvironment:
      return abi::environment::kSize;
    case abi::kDevice:
      return abi::device::kSize;
    case abi::kContext:
      return abi::context::kSize;
    default:
      return 0;
  }
}

}  // namespace

Decoding decode(const std::byte* record, size_t room, uint32_t version, Decoded& out) noexcept {
  const Fields fields{record, room, version};
  if (room < sizeof(uint32_t)) return Decoding::kTruncated;
  const auto kind = fields.get<uint32_t>(abi::kKind);
  const size_t least = least_size(kind);
  if (least == 0) return Decoding::kUnknown;
  if (room < least) return Decoding::kTruncated;
  switch (kind) {
    case abi::kConcurrentKernel:
      decode_kernel(fields, out);
      break;
    case abi::kMemcpy:
    case abi::kMemcpyPeer:
      decode_copy(fields, kind == abi::kMemcpyPeer, out);
      break;
    case abi::kMemset:
      decode_set(fields, out);
      break;
    case abi::kDriver:
    case abi::kRuntime:
      decode_api(fields, kind == abi::kRuntime ? GpuApiKind::kRuntime : GpuApiKind::kDriver, out);
      break;
    case abi::kSynchronization:
      decode_sync(fields, out);
      break;
    case abi::kCudaEvent:
      decode_event(fields, out);
      break;
    case abi::kOverhead:
      decode_overhead(fields, out);
      break;
    case abi::kMemory2:
      decode_memory(fields, out);
      break;
    case abi::kMemoryPool:
      decode_pool(fields, out);
      break;
    case abi::kEnvironment:
      decode_environment(fields, out);
      break;
    case abi::kDevice:
      decode_device(fields, out);
      break;
    default:
      decode_context(fields, out);
  }
  return Decoding::kDone;
}

}  // namespace torchprof::cupti
