// Records as CUPTI 11.8, 12.4, 13.0 and 13.1 write them (tests/cupti_sim/layouts.h), turned into ours.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "cupti/activity_decode.h"
#include "tests/cupti_sim/layouts.h"

namespace cupti_decode_test {

using namespace torchprof;
using namespace torchprof::cupti;
using namespace cupti_sim;

namespace {

constexpr uint32_t kVersions[] = {18, 22, 130000, 130100};

// As it lies in a buffer of that version: nothing behind its end may be looked at.
template <class R>
Decoding decode_as(uint32_t version, const R& record, Decoded& out) {
  const auto* at = reinterpret_cast<const std::byte*>(&record);
  const std::vector<std::byte> bytes(at, at + R::size(version));
  return decode(bytes.data(), bytes.size(), version, out);
}

template <class Ours, class R>
Ours decoded(uint32_t version, const R& record) {
  Decoded out;
  REQUIRE(decode_as(version, record, out) == Decoding::kDone);
  REQUIRE(out.kind == kKindOf<Ours>);
  REQUIRE(out.bytes == sizeof(Ours));
  return out.as<Ours>();
}

}  // namespace

TEST_CASE("a kernel keeps its shape, its place and its graph in every version") {
  KernelRecord k;
  k.registers_per_thread = 40, k.start = 1000, k.end = 2500, k.queued = 900, k.submitted = 950;
  k.device_id = 3, k.context_id = 1, k.stream_id = 7, k.correlation_id = 91;
  k.grid_x = 10, k.grid_y = 20, k.grid_z = 30, k.block_x = 128, k.block_y = 2, k.block_z = 4;
  k.static_shared_memory = 512, k.dynamic_shared_memory = 1024, k.shared_memory_executed = 32768;
  k.local_memory_per_thread = 16, k.launch_type = 1, k.graph_node_id = 1ull << 40, k.graph_id = 6;
  k.channel_id = 12, k.channel_type = 1, k.name = "_Z6matmulv", k.priority = -3;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    Decoded out;
    REQUIRE(decode_as(version, k, out) == Decoding::kDone);
    CHECK(out.name == k.name);
    const auto r = out.as<GpuKernel>();
    CHECK((r.start == 1000 && r.end == 2500 && r.queued == 900 && r.submitted == 950));
    CHECK((r.device == 3 && r.context == 1 && r.stream == 7 && r.correlation == 91));
    CHECK((r.grid[0] == 10 && r.grid[1] == 20 && r.grid[2] == 30));
    CHECK((r.block[0] == 128 && r.block[1] == 2 && r.block[2] == 4));
    CHECK((r.static_shared == 512 && r.dynamic_shared == 1024 && r.shared_executed == 32768));
    CHECK((r.registers == 40 && r.local_per_thread == 16 && r.launch_type == 1));
    CHECK((r.graph_node == 1ull << 40 && r.graph == 6 && r.channel == 12 && r.channel_type == 1));
    CHECK((r.has_priority != 0) == (version == 130100));
    CHECK(r.priority == (version == 130100 ? -3 : 0));
  }
}

TEST_CASE("copies keep their kinds, and those between devices both ends") {
  MemcpyRecord m;
  m.copy_kind = 1, m.src_kind = 2, m.dst_kind = 3, m.flags = 1, m.bytes = 4096, m.start = 5, m.end = 9;
  m.device_id = 1, m.context_id = 2, m.stream_id = 14, m.correlation_id = 33, m.graph_node_id = 8, m.graph_id = 4;
  m.channel_id = 5, m.channel_type = 2;
  PeerRecord p;
  p.bytes = 77, p.start = 1, p.end = 2, p.stream_id = 20, p.src_device_id = 0, p.src_context_id = 1;
  p.dst_device_id = 3, p.dst_context_id = 4, p.correlation_id = 34, p.graph_node_id = 9, p.graph_id = 2;
  p.channel_id = 6, p.channel_type = 1;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    const auto one = decoded<GpuCopy>(version, m);
    CHECK((one.copy_kind == 1 && one.src_kind == 2 && one.dst_kind == 3 && one.flags == 1 && !one.is_peer));
    CHECK((one.bytes == 4096 && one.start == 5 && one.end == 9 && one.correlation == 33));
    CHECK((one.device == 1 && one.context == 2 && one.stream == 14 && one.src_device == kNoGpuNumber));
    CHECK((one.graph_node == 8 && one.graph == 4 && one.channel == 5 && one.channel_type == 2));
    const auto peer = decoded<GpuCopy>(version, p);
    CHECK((peer.is_peer && peer.copy_kind == 10 && peer.bytes == 77 && peer.correlation == 34 && peer.stream == 20));
    CHECK((peer.src_device == 0 && peer.src_context == 1 && peer.dst_device == 3 && peer.dst_context == 4));
    CHECK((peer.graph_node == 9 && peer.graph == 2 && peer.channel == 6 && peer.channel_type == 1));
  }
}

TEST_CASE("memsets, calls and allocations") {
  MemsetRecord m;
  m.value = 0xab, m.bytes = 64, m.start = 3, m.end = 4, m.stream_id = 7, m.correlation_id = 2, m.flags = 1;
  m.graph_node_id = 5, m.graph_id = 6, m.channel_id = 7, m.channel_type = 1;
  ApiRecord a;
  a.cbid = 211, a.start = 10, a.end = 20, a.thread_id = 0xdeadbeef, a.correlation_id = 5, a.return_value = 2;
  MemoryRecord y;
  y.operation = 2, y.address = 0x7f0000, y.bytes = 512, y.timestamp = 99, y.device_id = 1, y.correlation_id = 8;
  y.context_id = 3, y.stream_id = 13, y.is_async = 1;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    const auto set = decoded<GpuSet>(version, m);
    CHECK((set.value == 0xab && set.bytes == 64 && set.memory_kind == 3 && set.flags == 1 && set.stream == 7));
    CHECK((set.graph_node == 5 && set.graph == 6 && set.channel == 7 && set.channel_type == 1));
    a.kind = 5;
    const auto call = decoded<GpuApi>(version, a);
    CHECK((call.api == GpuApiKind::kRuntime && call.cbid == 211 && call.start == 10 && call.end == 20));
    CHECK((call.thread == 0xdeadbeef && call.correlation == 5 && call.result == 2));
    a.kind = 4;
    CHECK(decoded<GpuApi>(version, a).api == GpuApiKind::kDriver);
    const auto memory = decoded<GpuMemory>(version, y);
    CHECK((memory.operation == 2 && memory.kind == 3 && memory.address == 0x7f0000 && memory.bytes == 512));
    CHECK((memory.time == 99 && memory.device == 1 && memory.context == 3 && memory.stream == 13 && memory.is_async));
  }
}

TEST_CASE("pools of memory, and what a device says of itself") {
  PoolRecord p;
  p.operation = 3, p.pool_type = 2, p.correlation_id = 7, p.device_id = 1, p.address = 0x7f00, p.bytes = 4096;
  p.release_threshold = 64, p.timestamp = 12, p.utilized = 1024;
  EnvironmentRecord e;
  e.device_id = 2, e.timestamp = 99;
  for (uint32_t i = 0; i < 5; ++i) e.values[i] = 100 + i;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    const auto pool = decoded<GpuMemoryPool>(version, p);
    CHECK(
        (pool.operation == 3 && pool.type == 2 && pool.correlation == 7 && pool.device == 1 && pool.address == 0x7f00));
    CHECK((pool.bytes == 4096 && pool.threshold == 64 && pool.time == 12 && pool.used == 1024));
    const uint32_t last[] = {0, 104, 100, 101, 100, 0};  // of as many as the kind has
    for (const uint32_t kind : {1u, 2u, 3u, 4u, 5u}) {
      e.environment_kind = kind;
      const auto sample = decoded<GpuEnvironment>(version, e);
      CHECK((sample.device == 2 && sample.time == 99 && sample.kind == kind));
      CHECK(*std::max_element(sample.values, sample.values + 5) == last[kind]);
    }
  }
}

TEST_CASE("what a version does not have yet is zero, what it has is read") {
  SyncRecord s;
  s.type = 2, s.start = 1, s.end = 2, s.stream_id = 7, s.event_id = 4, s.event_sync_id = 55, s.return_value = 3;
  EventRecord e;
  e.event_id = 4, e.stream_id = 7, e.correlation_id = 6, e.device_timestamp = 1234, e.event_sync_id = 55;
  OverheadRecord o;
  o.overhead_kind = 2 << 16, o.process_id = 10, o.thread_id = 11, o.start = 1, o.end = 3, o.correlation_id = 9;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    const bool is_13 = version >= 130000;
    const auto sync = decoded<GpuSync>(version, s);
    CHECK((sync.type == 2 && sync.start == 1 && sync.end == 2 && sync.stream == 7 && sync.event == 4));
    CHECK((sync.event_record == (is_13 ? 55 : 0) && sync.result == (is_13 ? 3 : 0)));
    const auto event = decoded<GpuEvent>(version, e);
    CHECK((event.event == 4 && event.stream == 7 && event.correlation == 6));
    CHECK((event.device_time == (is_13 ? 1234 : 0) && event.event_record == (is_13 ? 55 : 0)));
    const auto overhead = decoded<GpuOverhead>(version, o);
    CHECK((overhead.kind == 2 << 16 && overhead.object_kind == 2 && overhead.start == 1 && overhead.end == 3));
    CHECK((overhead.process_or_context == 10 && overhead.object == 11 && overhead.device == kNoGpuNumber));
    CHECK(overhead.correlation == (version >= 21 ? 9 : 0));
  }
}

TEST_CASE("an older library's number hides what its records do not have") {
  KernelRecord k;
  k.channel_id = 12, k.graph_id = 3;
  CHECK(decoded<GpuKernel>(17, k).channel == 12);
  CHECK(decoded<GpuKernel>(16, k).channel == 0);
  CHECK(decoded<GpuKernel>(16, k).graph == 3);
  k.priority = -3;
  CHECK(!decoded<GpuKernel>(130001, k).has_priority);
}

TEST_CASE("devices and contexts") {
  DeviceRecord d;
  d.id = 2, d.name = "Simulated GPU";
  ContextRecord c;
  c.context_id = 5, c.device_id = 2, c.null_stream_id = 9;
  for (const uint32_t version : kVersions) {
    CAPTURE(version);
    Decoded out;
    REQUIRE(decode_as(version, d, out) == Decoding::kDone);
    CHECK(out.name == d.name);
    const auto device = out.as<GpuDeviceDef>();
    CHECK((device.device == 2 && device.memory == 80ull << 30 && device.major == 8 && device.minor == 0));
    CHECK((device.multiprocessors == 108 && device.warp_size == 32 && device.threads_per_block == 1024));
    CHECK((device.warps_per_multiprocessor == 64 && device.blocks_per_multiprocessor == 32));
    CHECK((device.registers_per_block == 65536 && device.registers_per_multiprocessor == 65536));
    CHECK((device.shared_per_block == 48 << 10 && device.shared_per_multiprocessor == 164 << 10));
    CHECK((device.l2_bytes == 40 << 20 && device.core_khz == 1'410'000 && device.bandwidth == 2'039'000'000));
    const auto context = decoded<GpuContextDef>(version, c);
    CHECK((context.context == 5 && context.device == 2 && context.default_stream == 9));
  }
}

TEST_CASE("what is unknown or cut off is said, and nothing behind its end is read") {
  Decoded out;
  CHECK(decode_as(130000, UnknownRecord{}, out) == Decoding::kUnknown);
  for (const uint32_t kind : {1u, 2u, 4u, 5u, 8u, 9u, 10u, 17u, 22u, 36u, 38u, 49u}) {
    CAPTURE(kind);
    const uint32_t size = size_of(kind, 18);
    for (uint32_t room = 0; room <= size; ++room) {
      std::vector<std::byte> bytes(room);  // exactly as large: the address sanitizer sees a byte too far
      if (room >= sizeof(kind)) std::memcpy(bytes.data(), &kind, sizeof(kind));
      const Decoding result = decode(bytes.data(), room, 18, out);
      CHECK(result == (room == size || result == Decoding::kDone ? Decoding::kDone : Decoding::kTruncated));
      if (room < 16) CHECK(result == Decoding::kTruncated);
    }
  }
}

TEST_CASE("five million records a second of processor time") {
  const std::vector<KernelRecord> kernels(4096);
  Decoded out;
  double rate = 0;
  // The best of a few: others use the processor, too.
  for (int attempt = 0; attempt < 10; ++attempt) {
    uint64_t sum = 0;
    constexpr int kRounds = 25;
    const std::clock_t begin = std::clock();
    for (int i = 0; i < kRounds; ++i)
      for (const KernelRecord& kernel : kernels) {
        decode(reinterpret_cast<const std::byte*>(&kernel), KernelRecord::size(18), 18, out);
        sum += out.as<GpuKernel>().grid[0];
      }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK(sum == kernels.size() * kRounds);
    rate = std::max(rate, static_cast<double>(sum) / seconds);
  }
  MESSAGE("records a second: ", rate);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(rate > 5e6);
#endif
}

}  // namespace cupti_decode_test
