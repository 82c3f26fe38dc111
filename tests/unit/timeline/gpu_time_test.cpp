// What devices and streams did and waited for, and how their work got to them.
#include "formats/timeline/gpu_time.h"

#include <doctest/doctest.h>

#include <string>

#include "formats/timeline/launches.h"

namespace gpu_time_test {

using namespace torchprof::formats;

namespace {

struct Builder {
  Builder() { t.rows.resize(1); }
  void work(const std::string& name, int64_t begin, int64_t end, uint32_t stream, WorkKind kind = WorkKind::kKernel,
            uint64_t bytes = 0) {
    t.work.push_back(
        {.begin = begin, .end = end, .bytes = bytes, .name = t.name(name), .stream = stream, .kind = kind});
  }
  void launched(int64_t call, int64_t call_end, const std::string& name, int64_t begin, int64_t end, uint32_t stream) {
    work(name, begin, end, stream);
    t.work.back().correlation = ++correlations;
    t.rows[0].spans.push_back({.begin = call,
                               .end = call_end,
                               .name = t.name("cudaLaunchKernel"),
                               .correlation = correlations,
                               .kind = SpanKind::kCall});
  }
  const Timeline& done() {
    t.finish();
    return t;
  }
  Timeline t;
  uint32_t correlations = 0;
};

}  // namespace

TEST_CASE("each instant of a device counts once, by what ran") {
  Builder b;
  b.work("gemm", 100, 200, 7);
  b.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 150, 300, 20);
  b.work("gemm", 190, 210, 8);
  b.work("Memcpy HtoD (Pinned -> Device)", 400, 450, 9, WorkKind::kCopy);
  b.work("Memset (Device)", 440, 500, 7, WorkKind::kSet);
  const GpuTimes times = gpu_times_of(TimelineIndex(b.done()));
  REQUIRE(times.devices.size() == 1);
  const DeviceTime& d = times.devices.at(0);
  CHECK(d.ns == 400);
  CHECK(d.idle_ns() == 100);
  CHECK(d.compute_ns() == 110);
  CHECK(d.other_ns() == 190);
  CHECK(d.communication_ns() == 150);
  CHECK(d.hidden_ns() == 60);
  CHECK(d.exactly[kRanMemory] == 100);
}

TEST_CASE("a stream's pauses are by what it waited for") {
  Builder b;
  b.launched(0, 10, "a", 20, 1'000, 7);
  b.launched(10, 20, "b", 1'002, 2'000, 7);            // launched long before: the next kernel's turn
  b.launched(12'000, 12'010, "c", 12'020, 13'000, 7);  // launched late
  b.launched(30, 40, "d", 113'000, 114'000, 7);        // something else held it up
  b.launched(40, 50, "e", 113'500, 114'500, 7);        // overlaps
  const GpuTimes times = gpu_times_of(TimelineIndex(b.done()));
  REQUIRE(times.streams.size() == 1);
  const StreamTime& s = times.streams[0];
  CHECK(s.works == 5);
  CHECK(s.ns == 114'480);
  CHECK(s.host_wait_ns == 10'020);
  CHECK(s.kernel_wait_ns == 2);
  CHECK(s.other_wait_ns == 100'000);
  CHECK(s.ns == s.busy_ns + s.host_wait_ns + s.kernel_wait_ns + s.other_wait_ns);
}

TEST_CASE("between steps that were left out nothing is idle") {
  Builder b;
  b.work("a", 100, 200, 7);
  b.work("b", 250, 300, 7);
  b.work("outside", 5'000, 6'000, 7);
  b.work("c", 10'100, 10'200, 7);
  b.t.steps = {{0, 225, 1}, {226, 1'000, 2}, {10'000, 11'000, 9}};
  const GpuTimes times = gpu_times_of(TimelineIndex(b.done()));
  CHECK(times.devices.at(0).ns == 300);
  CHECK(times.devices.at(0).idle_ns() == 50);
  CHECK(times.streams[0].works == 3);
}

TEST_CASE("launches: how long work waits, and how much") {
  Builder b;
  b.launched(0, 100, "a", 120, 150, 7);
  b.launched(100, 200, "b", 400, 1'000, 7);
  b.launched(200, 60'200, "c", 260'200, 260'210, 7);
  b.work("unknown", 300'000, 300'001, 7);
  const Launches launches = launches_of(TimelineIndex(b.done()));
  REQUIRE(launches.streams.size() == 1);
  const StreamLaunches& s = launches.streams[0];
  CHECK(s.works == 3);
  CHECK(s.call_ns == 60'200);
  CHECK(s.delay_ns == 20 + 200 + 200'000);
  CHECK(s.delay_median_ns == 200);
  CHECK(s.delay_max_ns == 200'000);
  CHECK(s.short_works == 2);
  CHECK(s.slow_calls == 1);
  CHECK(s.late_works == 1);
  CHECK(s.queue_max == 2);
  CHECK(s.queue_min == 0);
  CHECK(s.queue_mean == doctest::Approx((1 + 2 + 1 + 2 + 1 + 0) / 6.0));
}

TEST_CASE("copies by kind have the rates of each") {
  Builder b;
  b.work("Memcpy HtoD (Pinned -> Device)", 0, 100, 7, WorkKind::kCopy, 1'000);
  b.work("Memcpy HtoD (Pageable -> Device)", 200, 300, 7, WorkKind::kCopy, 3'000);
  b.work("Memset (Device)", 300, 300, 7, WorkKind::kSet, 50);
  const Launches launches = launches_of(TimelineIndex(b.done()));
  REQUIRE(launches.copies.size() == 2);
  const CopyRates& copies = launches.copies.at("Memcpy HtoD");
  CHECK(copies.works == 2);
  CHECK(copies.bytes == 4'000);
  CHECK(copies.rate_min == 10);
  CHECK(copies.rate_max == 30);
  CHECK(copies.rate_sum / 2 == 20);
  CHECK(launches.copies.at("Memset").rated == 0);
}

}  // namespace gpu_time_test
