// The records of GPUs: a part of tracer/spool/record.h, which includes it; nobody else does.
//
// Their times (`start`, `end` ...) are CUPTI's: nanoseconds of the clock that GpuClock records convert to ticks, which
// is CLOCK_REALTIME unless the program gave CUPTI a clock of its own. 0: not known (the activity had not ended when
// CUPTI had to hand it over). The header's time is when CUPTI delivered the record, and its track the thread on which
// that happened. On such a track the records are in the order of delivery, not of the events, and belong to other
// threads (GpuApi::thread) or to none.
//
// A correlation is CUPTI's number of an API call. The call, what it started on a device and what that waited for share
// it; it is unique in a process, 0: none. Numbers of devices are CUDA's, those of contexts and streams CUPTI's,
// kNoGpuNumber: none. Enumerations are CUPTI's own numbers, those of 11.0 to 13.0; a field that the process's CUPTI
// does not have is 0.
//
// With them come facts (MetaDef): "cupti.version" (cuptiGetVersion), "cuda.driver" and "cuda.runtime" (12040 is 12.4),
// "cupti.library" (the file), "cupti.thread" ("pthread" or "system": what GpuApi::thread is), and the source "gpu".
#pragma once

namespace torchprof {

inline constexpr uint32_t kNoGpuNumber = ~uint32_t{0};

struct GpuDeviceDef {  // the later one of a number holds
  RecordHeader header;
  StringId name;
  uint32_t device;
  uint64_t memory;     // bytes
  uint64_t bandwidth;  // of the memory, kB/s
  uint32_t major;      // compute capability
  uint32_t minor;
  uint32_t multiprocessors;
  uint32_t warp_size;
  uint32_t threads_per_block;
  uint32_t warps_per_multiprocessor;
  uint32_t blocks_per_multiprocessor;
  uint32_t registers_per_block;
  uint32_t registers_per_multiprocessor;
  uint32_t shared_per_block;        // bytes, as the two that follow
  uint32_t shared_per_block_optin;  // 0: not known
  uint32_t shared_per_multiprocessor;
  uint32_t l2_bytes;
  uint32_t core_khz;
};

struct GpuContextDef {
  RecordHeader header;
  uint32_t context;
  uint32_t device;
  uint32_t default_stream;  // the number of the default stream
  uint32_t pad;
};

// Work that has been the oldest of its stream without an end for a while: it runs, or waits for another stream. The
// later one of a context and a stream holds.
struct GpuStuckDef {
  RecordHeader header;
  uint64_t since;        // Ticks; when it was first seen to be the oldest
  StringId name;         // of a kernel, mangled; none: a copy or a set
  uint32_t correlation;  // 0: what was stuck has ended
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t launched;  // pieces of work in the stream that had not ended then, with this one
  uint32_t pad[2];
};

struct ThreadHandleDef {  // CUPTI's number of a thread where "cupti.thread" is "pthread"
  RecordHeader header;
  TrackId track;
  uint32_t handle;  // the lower half of pthread_self(); a later thread may have it again
};

struct GpuKernel {
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint64_t queued;  // 0 unless the program has switched latency timestamps on; likewise `submitted`
  uint64_t submitted;
  uint64_t graph_node;  // 0: not of a graph
  StringId name;        // mangled
  uint32_t correlation;
  uint32_t graph;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t grid[3];
  uint32_t block[3];
  int32_t static_shared;  // bytes
  int32_t dynamic_shared;
  uint32_t shared_executed;   // bytes that the device set aside for a block
  uint32_t local_per_thread;  // bytes
  uint16_t registers;         // of a thread
  uint8_t launch_type;        // CUpti_ActivityLaunchType: 0 regular, 1 cooperative, 2 cooperative on several devices
  uint8_t channel_type;       // CUpti_ChannelType
  uint32_t channel;
  int32_t priority;      // of the stream; meaningless unless `has_priority`
  uint8_t has_priority;  // CUPTI 13.1 and up
  uint8_t pad[3];
};

struct GpuCopy {  // a memcpy, also from device to device (is_peer)
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint64_t bytes;
  uint64_t graph_node;
  uint32_t correlation;
  uint32_t graph;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint8_t copy_kind;  // CUpti_ActivityMemcpyKind: 1 HtoD, 2 DtoH ... 8 DtoD, 9 HtoH, 10 PtoP
  uint8_t src_kind;   // CUpti_ActivityMemoryKind: 1 pageable, 2 pinned, 3 device, 4 array, 5 managed ...
  uint8_t dst_kind;
  uint8_t flags;        // 1: asynchronous
  uint32_t src_device;  // these four of a copy between devices only, otherwise kNoGpuNumber
  uint32_t src_context;
  uint32_t dst_device;
  uint32_t dst_context;
  uint32_t channel;
  uint8_t channel_type;
  uint8_t is_peer;  // the record was one of peer to peer copies
  uint8_t pad[2];
};

struct GpuSet {  // a memset
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint64_t bytes;
  uint64_t graph_node;
  uint32_t correlation;
  uint32_t graph;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t value;
  uint16_t memory_kind;  // CUpti_ActivityMemoryKind
  uint8_t flags;         // 1: asynchronous
  uint8_t channel_type;
  uint32_t channel;
};

enum class GpuApiKind : uint8_t { kDriver = 1, kRuntime = 2 };

struct GpuApi {  // a call of the CUDA driver or runtime
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint16_t cbid;  // CUpti_runtime_api_trace_cbid or CUpti_driver_api_trace_cbid; 65535: a larger one
  GpuApiKind api;
  uint8_t pad;
  uint32_t thread;  // see the fact "cupti.thread"
  uint32_t correlation;
  uint32_t result;  // cudaError_t or CUresult
};

struct GpuSync {
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint64_t event_record;  // which record of the event it waits for (GpuEvent::event_record), 0: not known
  uint32_t correlation;
  uint32_t context;
  uint32_t stream;  // kNoGpuNumber: of an event or context
  uint32_t event;   // kNoGpuNumber: of a stream or context
  uint32_t result;
  uint8_t type;  // CUpti_ActivitySynchronizationType: 1 event, 2 stream waits for event, 3 stream, 4 context
  uint8_t pad[3];
};

struct GpuEvent {  // cudaEventRecord; its time is that of its call, which has the same correlation
  RecordHeader header;
  uint64_t device_time;   // 0: not known (CUPTI below 12.8, or timestamps not enabled)
  uint64_t event_record;  // unique for each record of an event; 0: not known
  uint32_t correlation;
  uint32_t context;
  uint32_t stream;
  uint32_t event;
};

struct GpuOverhead {  // time that CUPTI or the driver took from the program
  RecordHeader header;
  uint64_t start;
  uint64_t end;
  uint32_t correlation;  // CUPTI 12.3 and up
  uint32_t device;       // only for objects that belong to a device
  uint32_t object;       // a thread as in GpuApi, or a stream, depending on `object_kind`
  uint32_t process_or_context;
  uint32_t kind;        // CUpti_ActivityOverheadKind: 1 the driver's compiler, 1 << 16 a flush of buffers ...
  uint8_t object_kind;  // CUpti_ActivityObjectKind: 1 process, 2 thread, 3 device, 4 context, 5 stream
  uint8_t pad[3];
};

struct GpuMemory {  // the driver allocates or frees
  RecordHeader header;
  uint64_t time;
  uint64_t address;
  uint64_t bytes;
  uint32_t correlation;
  uint32_t device;
  uint32_t context;
  uint32_t stream;    // only where `is_async`, otherwise kNoGpuNumber
  uint8_t operation;  // CUpti_ActivityMemoryOperationType: 1 allocation, 2 release
  uint8_t kind;       // CUpti_ActivityMemoryKind
  uint8_t is_async;
  uint8_t pad[5];
};

struct GpuMemoryPool {  // the driver makes, trims or destroys a pool such as cudaMallocAsync uses
  RecordHeader header;
  uint64_t time;
  uint64_t address;
  uint64_t bytes;      // of the pool
  uint64_t used;       // bytes of those; CUPTI 11.5 and up
  uint64_t threshold;  // bytes that it keeps when the driver trims it
  uint32_t correlation;
  uint32_t device;
  uint8_t operation;  // CUpti_ActivityMemoryPoolOperationType: 1 made, 2 destroyed, 3 trimmed
  uint8_t type;       // CUpti_ActivityMemoryPoolType: 1 local, 2 imported
  uint8_t pad[6];
};

struct GpuEnvironment {  // a sample of a device, as often as CUPTI takes one
  RecordHeader header;
  uint64_t time;  // 0: not known
  uint32_t device;
  uint32_t kind;  // CUpti_ActivityEnvironmentKind: 1 speed, 2 temperature, 3 power, 4 cooling
  // By `kind`; values that it does not use are 0.
  //   1   MHz of the multiprocessors, MHz of the memory, generation and width of the PCIe link, why the clock is low
  //       (CUpti_EnvironmentClocksThrottleReason: 1 idle, 2 as the user set it, 4 power cap, 8 hardware slowdown)
  //   2   degrees C
  //   3   mW, and the limit in mW
  //   4   percent of the fan's speed
  uint32_t values[5];
  uint32_t pad;
};

struct GpuClock {  // cuptiGetTimestamp() between two readings of our clock
  RecordHeader header;
  uint64_t before;  // ticks, not counted from a chunk's base
  uint64_t after;
  uint64_t cupti;  // ns
};

enum class GpuLoss : uint8_t {
  kDropped = 1,    // CUPTI had no buffer for them; `count` is its own number
  kMalformed = 2,  // a record that does not fit into its buffer, or the rest of a buffer that could not be walked
  kUnknown = 3,    // records of kinds that were not asked for
  kAside = 4,      // count 0: from the header's time on CUPTI serves another client and not us ...
  kBack = 5,       // ... until the time of this one
};

struct GpuDropped {
  RecordHeader header;
  uint64_t count;
  uint32_t context;  // kNoGpuNumber: of all
  uint32_t stream;
  GpuLoss loss;
  uint8_t pad[7];
};

}  // namespace torchprof
