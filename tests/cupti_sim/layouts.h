// The activity records as the simulated CUPTI writes them, by version. Written from NVIDIA's documentation of the
// structs, on purpose without a look at cupti/cupti_abi.h: where the two disagree a test fails.
//
// Each struct is the newest one; an older CUPTI's ends earlier, and `size` says where. Versions: 18 is 11.8, 22
// is 12.4, 130000 is 13.0, 130100 is 13.1.
#pragma once

#include <cstdint>

namespace cupti_sim {

struct KernelRecord {
  uint32_t kind = 10;
  uint8_t cache_config = 0;
  uint8_t shared_memory_config = 0;
  uint16_t registers_per_thread = 0;
  uint32_t partitioned_cache_requested = 0;
  uint32_t partitioned_cache_executed = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t completed = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  int32_t grid_x = 1;
  int32_t grid_y = 1;
  int32_t grid_z = 1;
  int32_t block_x = 1;
  int32_t block_y = 1;
  int32_t block_z = 1;
  int32_t static_shared_memory = 0;
  int32_t dynamic_shared_memory = 0;
  uint32_t local_memory_per_thread = 0;
  uint32_t local_memory_total = 0;
  uint32_t correlation_id = 0;
  int64_t grid_id = 0;
  const char* name = nullptr;
  void* reserved = nullptr;
  uint64_t queued = 0;
  uint64_t submitted = 0;
  uint8_t launch_type = 0;
  uint8_t carveout_is_requested = 0;
  uint8_t carveout = 0;
  uint8_t padding = 0;
  uint32_t shared_memory_executed = 0;
  uint64_t graph_node_id = 0;
  uint32_t shared_memory_limit = 0;
  uint32_t graph_id = 0;
  void* access_policy_window = nullptr;
  uint32_t channel_id = 0;
  uint32_t channel_type = 0;
  uint32_t cluster_x = 0;
  uint32_t cluster_y = 0;
  uint32_t cluster_z = 0;
  uint32_t cluster_scheduling_policy = 0;
  uint64_t local_memory_total_v2 = 0;  // ends 11.8
  uint32_t max_potential_cluster_size = 0;
  uint32_t max_active_clusters = 0;  // ends 12.4
  uint8_t is_device_launched = 0;
  uint8_t padding3[7] = {};  // ends 13.0
  int32_t priority = 0;
  uint32_t padding4 = 0;
  static constexpr uint32_t size(uint32_t version) {
    return version >= 130100 ? 224 : version >= 130000 ? 216 : version >= 22 ? 208 : 200;
  }
};
static_assert(sizeof(KernelRecord) == 224);

struct MemcpyRecord {
  uint32_t kind = 1;
  uint8_t copy_kind = 0;
  uint8_t src_kind = 0;
  uint8_t dst_kind = 0;
  uint8_t flags = 0;
  uint64_t bytes = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  uint32_t correlation_id = 0;
  uint32_t runtime_correlation_id = 0;
  uint32_t pad = 0;
  void* reserved = nullptr;
  uint64_t graph_node_id = 0;
  uint32_t graph_id = 0;
  uint32_t channel_id = 0;
  uint32_t channel_type = 0;
  uint32_t pad2 = 0;  // ends 11.8 and 12.4
  uint64_t copy_count = 0;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 96 : 88; }
};
static_assert(sizeof(MemcpyRecord) == 96);

struct PeerRecord {
  uint32_t kind = 22;
  uint8_t copy_kind = 10;
  uint8_t src_kind = 3;
  uint8_t dst_kind = 3;
  uint8_t flags = 1;
  uint64_t bytes = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  uint32_t src_device_id = 0;
  uint32_t src_context_id = 0;
  uint32_t dst_device_id = 0;
  uint32_t dst_context_id = 0;
  uint32_t correlation_id = 0;
  void* reserved = nullptr;
  uint64_t graph_node_id = 0;
  uint32_t graph_id = 0;
  uint32_t channel_id = 0;
  uint32_t channel_type = 0;
  uint32_t pad = 0;
  static constexpr uint32_t size(uint32_t) { return 96; }
};
static_assert(sizeof(PeerRecord) == 96);

struct MemsetRecord {
  uint32_t kind = 2;
  uint32_t value = 0;
  uint64_t bytes = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  uint32_t correlation_id = 0;
  uint16_t flags = 0;
  uint16_t memory_kind = 3;
  uint32_t pad = 0;
  void* reserved = nullptr;
  uint64_t graph_node_id = 0;
  uint32_t graph_id = 0;
  uint32_t channel_id = 0;
  uint32_t channel_type = 0;
  uint32_t pad2 = 0;
  static constexpr uint32_t size(uint32_t) { return 88; }
};
static_assert(sizeof(MemsetRecord) == 88);

struct ApiRecord {
  uint32_t kind = 5;  // 4: driver
  uint32_t cbid = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t process_id = 0;
  uint32_t thread_id = 0;
  uint32_t correlation_id = 0;
  uint32_t return_value = 0;
  static constexpr uint32_t size(uint32_t) { return 40; }
};
static_assert(sizeof(ApiRecord) == 40);

struct ExternalRecord {  // CUpti_ActivityExternalCorrelation
  uint32_t kind = 39;
  uint32_t external_kind = 4;
  uint64_t external_id = 0;
  uint32_t correlation_id = 0;
  uint32_t reserved = 0;
  static constexpr uint32_t size(uint32_t) { return 24; }
};
static_assert(sizeof(ExternalRecord) == 24);

struct SyncRecord {
  uint32_t kind = 38;
  uint32_t type = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t correlation_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = UINT32_MAX;
  uint32_t event_id = UINT32_MAX;  // ends 11.8 and 12.4
  uint64_t event_sync_id = 0;
  uint32_t return_value = 0;
  uint32_t pad = 0;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 56 : 40; }
};
static_assert(sizeof(SyncRecord) == 56);

struct EventRecord {
  uint32_t kind = 36;
  uint32_t correlation_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  uint32_t event_id = 0;
  uint32_t pad = 0;  // ends 11.8 and 12.4
  uint32_t device_id = 0;
  uint32_t pad2 = 0;
  void* reserved = nullptr;
  uint64_t device_timestamp = 0;
  uint64_t event_sync_id = 0;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 56 : 24; }
};
static_assert(sizeof(EventRecord) == 56);

struct OverheadRecord {
  uint32_t kind = 17;
  uint32_t overhead_kind = 0;
  uint32_t object_kind = 2;  // a thread
  uint32_t process_id = 0;
  uint32_t thread_id = 0;
  uint32_t object_pad = 0;
  uint64_t start = 0;
  uint64_t end = 0;  // ends 11.8
  uint32_t correlation_id = 0;
  uint32_t reserved = 0;  // ends 12.4
  void* data = nullptr;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 56 : version >= 22 ? 48 : 40; }
};
static_assert(sizeof(OverheadRecord) == 56);

struct MemoryRecord {
  uint32_t kind = 49;
  uint32_t operation = 1;
  uint32_t memory_kind = 3;
  uint32_t correlation_id = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t timestamp = 0;
  uint64_t pc = 0;
  uint32_t process_id = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = UINT32_MAX;
  const char* name = nullptr;
  uint32_t is_async = 0;
  uint32_t pad1 = 0;
  uint8_t pool[40] = {};  // ends 11.8 and 12.4
  const char* source = nullptr;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 128 : 120; }
};
static_assert(sizeof(MemoryRecord) == 128);

struct PoolRecord {
  uint32_t kind = 50;
  uint32_t operation = 1;
  uint32_t pool_type = 1;
  uint32_t correlation_id = 0;
  uint32_t process_id = 0;
  uint32_t device_id = 0;
  uint64_t min_bytes_to_keep = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t release_threshold = 0;
  uint64_t timestamp = 0;
  uint64_t utilized = 0;
  static constexpr uint32_t size(uint32_t) { return 72; }
};
static_assert(sizeof(PoolRecord) == 72);

struct EnvironmentRecord {
  uint32_t kind = 20;
  uint32_t device_id = 0;
  uint64_t timestamp = 0;
  uint32_t environment_kind = 1;
  uint32_t values[5] = {};
  static constexpr uint32_t size(uint32_t) { return 40; }
};
static_assert(sizeof(EnvironmentRecord) == 40);

struct DeviceRecord {
  uint32_t kind = 8;
  uint32_t flags = 0;
  uint64_t memory_bandwidth = 2'039'000'000;
  uint64_t memory_size = 80ull << 30;
  uint32_t constant_memory_size = 65536;
  uint32_t l2_cache_size = 40 << 20;
  uint32_t threads_per_warp = 32;
  uint32_t core_clock_rate = 1'410'000;
  uint32_t memcpy_engines = 3;
  uint32_t multiprocessors = 108;
  uint32_t max_ipc = 4;
  uint32_t max_warps_per_multiprocessor = 64;
  uint32_t max_blocks_per_multiprocessor = 32;
  uint32_t max_shared_memory_per_multiprocessor = 164 << 10;
  uint32_t max_registers_per_multiprocessor = 65536;
  uint32_t max_registers_per_block = 65536;
  uint32_t max_shared_memory_per_block = 48 << 10;
  uint32_t max_threads_per_block = 1024;
  uint32_t max_block_dim[3] = {1024, 1024, 64};
  uint32_t max_grid_dim[3] = {0x7fffffff, 65535, 65535};
  uint32_t compute_capability_major = 8;
  uint32_t compute_capability_minor = 0;
  uint32_t id = 0;
  uint32_t ecc_enabled = 1;
  uint8_t uuid[16] = {};
  const char* name = nullptr;
  uint8_t is_cuda_visible = 1;
  uint8_t is_mig_enabled = 0;
  uint8_t reserved[6] = {};
  uint32_t gpu_instance_id = 0;
  uint32_t compute_instance_id = 0;
  uint8_t mig_uuid[16] = {};  // ends 11.8 and 12.4
  uint32_t is_numa_node = 0;
  uint32_t numa_id = 0;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 184 : 176; }
};
static_assert(sizeof(DeviceRecord) == 184);

struct ContextRecord {
  uint32_t kind = 9;
  uint32_t context_id = 0;
  uint32_t device_id = 0;
  uint16_t compute_api_kind = 1;
  uint16_t null_stream_id = 7;  // ends 11.8 and 12.4
  uint32_t parent_context_id = 0;
  uint8_t is_green_context = 0;
  uint8_t padding = 0;
  uint16_t multiprocessors = 0;
  uint32_t cig_mode = 0;
  uint32_t padding2 = 0;
  static constexpr uint32_t size(uint32_t version) { return version >= 130000 ? 32 : 16; }
};
static_assert(sizeof(ContextRecord) == 32);

// Of a kind that no client of ours has asked for; the simulator writes it where a test wants junk.
struct UnknownRecord {
  uint32_t kind = 77;
  uint32_t words[7] = {};
  static constexpr uint32_t size(uint32_t) { return 32; }
};

// The size of a record of this kind; 0: there is no such kind.
inline uint32_t size_of(uint32_t kind, uint32_t version) {
  switch (kind) {
    case 10:
      return KernelRecord::size(version);
    case 1:
      return MemcpyRecord::size(version);
    case 22:
      return PeerRecord::size(version);
    case 2:
      return MemsetRecord::size(version);
    case 4:
    case 5:
      return ApiRecord::size(version);
    case 39:
      return ExternalRecord::size(version);
    case 38:
      return SyncRecord::size(version);
    case 36:
      return EventRecord::size(version);
    case 17:
      return OverheadRecord::size(version);
    case 49:
      return MemoryRecord::size(version);
    case 50:
      return PoolRecord::size(version);
    case 20:
      return EnvironmentRecord::size(version);
    case 8:
      return DeviceRecord::size(version);
    case 9:
      return ContextRecord::size(version);
    case 77:
      return UnknownRecord::size(version);
    default:
      return 0;
  }
}

}  // namespace cupti_sim
