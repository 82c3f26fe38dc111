// The table of CUPTI's records beside CUPTI's own header, where a CUDA toolkit is installed. Elsewhere the test says so
// and counts as skipped.
#if __has_include(<cupti.h>)
#include <cupti.h>
#include <doctest/doctest.h>

#include <cstddef>

#include "cupti/cupti_abi.h"

namespace abi = torchprof::cupti::abi;

#define SAME(Struct, member, field) \
  static_assert(offsetof(Struct, member) == abi::field.at && sizeof(Struct) > abi::field.at)
#define SIZE(Struct, size) static_assert(sizeof(Struct) == abi::size)
// A field that came with `Struct` was not in `Before`.
#define CAME_WITH(Before, Struct, field) \
  static_assert(sizeof(Before) <= abi::field.at && abi::field.at < sizeof(Struct) && abi::field.since > abi::kOldest)

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

using Kernel = CUpti_ActivityKernel10;
SIZE(CUpti_ActivityKernel5, kernel::kSize);
SAME(Kernel, registersPerThread, kernel::kRegisters);
SAME(Kernel, start, kernel::kStart);
SAME(Kernel, end, kernel::kEnd);
SAME(Kernel, deviceId, kernel::kDevice);
SAME(Kernel, contextId, kernel::kContext);
SAME(Kernel, streamId, kernel::kStream);
SAME(Kernel, gridX, kernel::kGrid);
SAME(Kernel, blockX, kernel::kBlock);
SAME(Kernel, staticSharedMemory, kernel::kStaticShared);
SAME(Kernel, dynamicSharedMemory, kernel::kDynamicShared);
SAME(Kernel, localMemoryPerThread, kernel::kLocalPerThread);
SAME(Kernel, correlationId, kernel::kCorrelation);
SAME(Kernel, name, kernel::kName);
SAME(Kernel, queued, kernel::kQueued);
SAME(Kernel, submitted, kernel::kSubmitted);
SAME(Kernel, launchType, kernel::kLaunchType);
SAME(Kernel, sharedMemoryExecuted, kernel::kSharedExecuted);
SAME(Kernel, graphNodeId, kernel::kGraphNode);
SAME(CUpti_ActivityKernel5, graphId, kernel::kGraph);
SAME(Kernel, graphId, kernel::kGraph);
SAME(Kernel, channelID, kernel::kChannel);
SAME(Kernel, channelType, kernel::kChannelType);
CAME_WITH(CUpti_ActivityKernel6, CUpti_ActivityKernel7, kernel::kChannel);
#if CUPTI_API_VERSION >= 130100
SAME(CUpti_ActivityKernel11, priority, kernel::kPriority);
CAME_WITH(CUpti_ActivityKernel10, CUpti_ActivityKernel11, kernel::kPriority);
#else
static_assert(sizeof(CUpti_ActivityKernel10) <= abi::kernel::kPriority.at);
#endif

using Memcpy = CUpti_ActivityMemcpy6;
SIZE(CUpti_ActivityMemcpy3, memcpy::kSize);
SAME(Memcpy, copyKind, memcpy::kCopyKind);
SAME(Memcpy, srcKind, memcpy::kSrcKind);
SAME(Memcpy, dstKind, memcpy::kDstKind);
SAME(Memcpy, flags, memcpy::kFlags);
SAME(Memcpy, bytes, memcpy::kBytes);
SAME(Memcpy, start, memcpy::kStart);
SAME(Memcpy, end, memcpy::kEnd);
SAME(Memcpy, deviceId, memcpy::kDevice);
SAME(Memcpy, contextId, memcpy::kContext);
SAME(Memcpy, streamId, memcpy::kStream);
SAME(Memcpy, correlationId, memcpy::kCorrelation);
SAME(Memcpy, graphNodeId, memcpy::kGraphNode);
SAME(Memcpy, graphId, memcpy::kGraph);
SAME(Memcpy, channelID, memcpy::kChannel);
SAME(Memcpy, channelType, memcpy::kChannelType);
CAME_WITH(CUpti_ActivityMemcpy3, CUpti_ActivityMemcpy4, memcpy::kGraph);
CAME_WITH(CUpti_ActivityMemcpy4, CUpti_ActivityMemcpy5, memcpy::kChannelType);

using Peer = CUpti_ActivityMemcpyPtoP4;
SIZE(CUpti_ActivityMemcpyPtoP2, peer::kSize);
SAME(Peer, bytes, memcpy::kBytes);
SAME(Peer, streamId, memcpy::kStream);
SAME(Peer, srcDeviceId, peer::kSrcDevice);
SAME(Peer, srcContextId, peer::kSrcContext);
SAME(Peer, dstDeviceId, peer::kDstDevice);
SAME(Peer, dstContextId, peer::kDstContext);
SAME(Peer, correlationId, peer::kCorrelation);
SAME(Peer, graphNodeId, peer::kGraphNode);
SAME(Peer, graphId, peer::kGraph);
SAME(Peer, channelID, peer::kChannel);
SAME(Peer, channelType, peer::kChannelType);
CAME_WITH(CUpti_ActivityMemcpyPtoP2, CUpti_ActivityMemcpyPtoP3, peer::kGraph);
CAME_WITH(CUpti_ActivityMemcpyPtoP2, CUpti_ActivityMemcpyPtoP4, peer::kChannel);

using Memset = CUpti_ActivityMemset4;
SIZE(CUpti_ActivityMemset2, memset::kSize);
SAME(Memset, value, memset::kValue);
SAME(Memset, bytes, memset::kBytes);
SAME(Memset, start, memset::kStart);
SAME(Memset, end, memset::kEnd);
SAME(Memset, deviceId, memset::kDevice);
SAME(Memset, contextId, memset::kContext);
SAME(Memset, streamId, memset::kStream);
SAME(Memset, correlationId, memset::kCorrelation);
SAME(Memset, flags, memset::kFlags);
SAME(Memset, memoryKind, memset::kMemoryKind);
SAME(Memset, graphNodeId, memset::kGraphNode);
SAME(Memset, graphId, memset::kGraph);
SAME(Memset, channelID, memset::kChannel);
SAME(Memset, channelType, memset::kChannelType);
CAME_WITH(CUpti_ActivityMemset2, CUpti_ActivityMemset3, memset::kGraph);

using Call = CUpti_ActivityAPI;
SIZE(Call, api::kSize);
SAME(Call, cbid, api::kCbid);
SAME(Call, start, api::kStart);
SAME(Call, end, api::kEnd);
SAME(Call, threadId, api::kThread);
SAME(Call, correlationId, api::kCorrelation);
SAME(Call, returnValue, api::kResult);

using Sync = CUpti_ActivitySynchronization2;
SIZE(CUpti_ActivitySynchronization, sync::kSize);
SAME(Sync, type, sync::kType);
SAME(Sync, start, sync::kStart);
SAME(Sync, end, sync::kEnd);
SAME(Sync, correlationId, sync::kCorrelation);
SAME(Sync, contextId, sync::kContext);
SAME(Sync, streamId, sync::kStream);
SAME(Sync, cudaEventId, sync::kEvent);
SAME(Sync, cudaEventSyncId, sync::kEventRecord);
SAME(Sync, returnValue, sync::kResult);
CAME_WITH(CUpti_ActivitySynchronization, Sync, sync::kEventRecord);

using Event = CUpti_ActivityCudaEvent2;
SIZE(CUpti_ActivityCudaEvent, event::kSize);
SAME(Event, correlationId, event::kCorrelation);
SAME(Event, contextId, event::kContext);
SAME(Event, streamId, event::kStream);
SAME(Event, eventId, event::kEvent);
SAME(Event, deviceTimestamp, event::kDeviceTime);
SAME(Event, cudaEventSyncId, event::kEventRecord);
CAME_WITH(CUpti_ActivityCudaEvent, Event, event::kDeviceTime);

using Overhead = CUpti_ActivityOverhead3;
SIZE(CUpti_ActivityOverhead, overhead::kSize);
SAME(Overhead, overheadKind, overhead::kOverheadKind);
SAME(Overhead, objectKind, overhead::kObjectKind);
SAME(Overhead, objectId, overhead::kObject);
SAME(Overhead, start, overhead::kStart);
SAME(Overhead, end, overhead::kEnd);
SAME(Overhead, correlationId, overhead::kCorrelation);
CAME_WITH(CUpti_ActivityOverhead, CUpti_ActivityOverhead2, overhead::kCorrelation);
static_assert(abi::overhead::kOfProcess == CUPTI_ACTIVITY_OBJECT_PROCESS);
static_assert(abi::overhead::kOfThread == CUPTI_ACTIVITY_OBJECT_THREAD);

using Memory = CUpti_ActivityMemory4;
SIZE(CUpti_ActivityMemory2, memory::kSize);
SAME(Memory, memoryOperationType, memory::kOperation);
SAME(Memory, memoryKind, memory::kMemoryKind);
SAME(Memory, correlationId, memory::kCorrelation);
SAME(Memory, address, memory::kAddress);
SAME(Memory, bytes, memory::kBytes);
SAME(Memory, timestamp, memory::kTime);
SAME(Memory, deviceId, memory::kDevice);
SAME(Memory, contextId, memory::kContext);
SAME(Memory, streamId, memory::kStream);
SAME(Memory, isAsync, memory::kIsAsync);
SAME(CUpti_ActivityMemory2, isAsync, memory::kIsAsync);

using Pool = CUpti_ActivityMemoryPool2;
SIZE(CUpti_ActivityMemoryPool, pool::kSize);
SAME(Pool, memoryPoolOperationType, pool::kOperation);
SAME(Pool, memoryPoolType, pool::kPoolType);
SAME(Pool, correlationId, pool::kCorrelation);
SAME(Pool, deviceId, pool::kDevice);
SAME(Pool, address, pool::kAddress);
SAME(Pool, size, pool::kBytes);
SAME(Pool, releaseThreshold, pool::kThreshold);
SAME(Pool, timestamp, pool::kTime);
SAME(Pool, utilizedSize, pool::kUsed);
CAME_WITH(CUpti_ActivityMemoryPool, CUpti_ActivityMemoryPool2, pool::kUsed);

using Environment = CUpti_ActivityEnvironment;
SIZE(Environment, environment::kSize);
SAME(Environment, deviceId, environment::kDevice);
SAME(Environment, timestamp, environment::kTime);
SAME(Environment, environmentKind, environment::kEnvironmentKind);
SAME(Environment, data, environment::kValues);
static_assert(offsetof(Environment, data.speed.clocksThrottleReasons) == abi::environment::kValues.at + 16);

using Device = CUpti_ActivityDevice5;
SIZE(CUpti_ActivityDevice2, device::kSize);
SAME(Device, globalMemoryBandwidth, device::kBandwidth);
SAME(Device, globalMemorySize, device::kMemory);
SAME(Device, l2CacheSize, device::kL2);
SAME(Device, numThreadsPerWarp, device::kWarp);
SAME(Device, coreClockRate, device::kClock);
SAME(Device, numMultiprocessors, device::kMultiprocessors);
SAME(Device, maxWarpsPerMultiprocessor, device::kWarps);
SAME(Device, maxBlocksPerMultiprocessor, device::kBlocks);
SAME(Device, maxSharedMemoryPerMultiprocessor, device::kSharedOfMultiprocessor);
SAME(Device, maxRegistersPerMultiprocessor, device::kRegistersOfMultiprocessor);
SAME(Device, maxRegistersPerBlock, device::kRegistersOfBlock);
SAME(Device, maxSharedMemoryPerBlock, device::kSharedOfBlock);
SAME(Device, maxThreadsPerBlock, device::kThreadsOfBlock);
SAME(Device, computeCapabilityMajor, device::kMajor);
SAME(Device, computeCapabilityMinor, device::kMinor);
SAME(Device, id, device::kId);
SAME(Device, name, device::kName);
SAME(CUpti_ActivityDevice2, name, device::kName);

using Context = CUpti_ActivityContext3;
SIZE(CUpti_ActivityContext, context::kSize);
SAME(Context, contextId, context::kContext);
SAME(Context, deviceId, context::kDevice);
SAME(Context, nullStreamId, context::kDefaultStream);

TEST_CASE("the table of CUPTI's records agrees with its header") {
  CHECK(uint32_t{abi::kMemcpy} == CUPTI_ACTIVITY_KIND_MEMCPY);
  CHECK(uint32_t{abi::kMemset} == CUPTI_ACTIVITY_KIND_MEMSET);
  CHECK(uint32_t{abi::kDriver} == CUPTI_ACTIVITY_KIND_DRIVER);
  CHECK(uint32_t{abi::kRuntime} == CUPTI_ACTIVITY_KIND_RUNTIME);
  CHECK(uint32_t{abi::kDevice} == CUPTI_ACTIVITY_KIND_DEVICE);
  CHECK(uint32_t{abi::kContext} == CUPTI_ACTIVITY_KIND_CONTEXT);
  CHECK(uint32_t{abi::kConcurrentKernel} == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CHECK(uint32_t{abi::kOverhead} == CUPTI_ACTIVITY_KIND_OVERHEAD);
  CHECK(uint32_t{abi::kMemcpyPeer} == CUPTI_ACTIVITY_KIND_MEMCPY2);
  CHECK(uint32_t{abi::kCudaEvent} == CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  CHECK(uint32_t{abi::kSynchronization} == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  CHECK(uint32_t{abi::kMemory2} == CUPTI_ACTIVITY_KIND_MEMORY2);
  CHECK(uint32_t{abi::kMemoryPool} == CUPTI_ACTIVITY_KIND_MEMORY_POOL);
  CHECK(uint32_t{abi::kEnvironment} == CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  CHECK(abi::kMaxLimitReached == CUPTI_ERROR_MAX_LIMIT_REACHED);
  CHECK(abi::kNotInitialized == CUPTI_ERROR_NOT_INITIALIZED);
  CHECK(abi::kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
}
#else
#include <cstdio>

int main() {
  std::puts("skipped: no cupti.h here (a CUDA toolkit's include directory)");
  return 77;  // to meson: skipped
}
#endif
