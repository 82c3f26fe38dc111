#include "formats/memory/memory.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "formats/analysis/statistics.h"
#include "formats/io/output.h"
#include "formats/report/page.h"
#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace memory_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

MemoryChange change(uint64_t address, int64_t bytes, uint64_t allocated, uint32_t op = 0) {
  return {.time = {int64_t(address)}, .address = address, .bytes = bytes, .allocated = allocated, .owner = {.op = op}};
}

std::string numbered(uint32_t id) { return "op" + std::to_string(id); }

// "op 100 bytes in 1", a line for each owner at the peak.
std::string shares(const DeviceMemory& device) {
  std::string text = "\n";
  for (const PeakShare& s : device.shares)
    text += s.owner.module + "|" + s.owner.outer_op + "|" + s.owner.op + "|" + s.owner.place + " " +
            std::to_string(s.bytes) + " in " + std::to_string(s.blocks) + "\n";
  return text;
}

// Memory as the long record has it: address, bytes, allocated, reserved, device.
void memory(SpoolBuilder& b, uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved = 0,
            uint64_t device = 0xff00) {
  b.raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), allocated, reserved, device});
}

void short_memory(SpoolBuilder& b, uint64_t address, int64_t bytes) {
  // As the recorder does: in two words where the size allows it.
  if (bytes % kShortMemoryUnit != 0) {
    b.short_record(kShortMemory, 0, {address, static_cast<uint64_t>(bytes)});
  } else {
    b.short_record(bytes < 0 ? kShortFree : kShortAllocation, static_cast<uint64_t>(std::abs(bytes) / kShortMemoryUnit),
                   {address});
  }
}

std::vector<DeviceMemory> devices_of(const SpoolBuilder& b) {
  const test::LoadedTrace trace(b);
  return statistics_of(trace->processes.at(0)).memory;
}

}  // namespace

TEST_CASE("the peak holds what lived then, by owner, though more came and went after it") {
  MemoryCollector memory;
  memory.add(change(1, 100, 100, 1));
  memory.add(change(2, 50, 150, 2));
  memory.add(change(2, -50, 100));
  memory.add(change(3, 30, 130, 3));
  memory.add(change(4, 70, 200, 1));  // the peak
  memory.add(change(1, -100, 100));
  memory.add(change(5, 60, 160, 2));
  const auto devices = memory.finish(numbered);
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].peak_bytes == 200);
  CHECK(devices[0].peak == UnixNs{4});
  CHECK(devices[0].end_bytes == 160);
  CHECK(devices[0].allocations == 5);
  CHECK(devices[0].frees == 2);
  CHECK(devices[0].unknown_bytes == 0);
  CHECK(shares(devices[0]) == "\n||op1| 170 in 2\n||op3| 30 in 1\n");
}

TEST_CASE("what was allocated before the capture counts to the peak and belongs to nobody") {
  MemoryCollector memory;
  memory.add(change(1, 10, 1010, 1));
  memory.add(change(9, -500, 510));
  const auto devices = memory.finish(numbered);
  CHECK(devices[0].peak_bytes == 1010);
  CHECK(devices[0].unknown_bytes == 1000);
  CHECK(devices[0].end_bytes == 510);
}

TEST_CASE("an address that is used again without a free in between has only its last block") {
  MemoryCollector memory;
  memory.add(change(1, 10, 10, 1));
  memory.add(change(1, 20, 20, 2));
  CHECK(shares(memory.finish(numbered)[0]) == "\n||op2| 20 in 1\n");
}

TEST_CASE("each device has its own peak, a failed allocation is none") {
  MemoryCollector memory;
  memory.add(change(1, 10, 10, 1));
  MemoryChange cuda = change(1, 77, 99, 2);
  cuda.device_type = 1;
  cuda.device_index = 3;
  memory.add(cuda);
  cuda.is_out_of_memory = true;
  cuda.bytes = int64_t{1} << 60;
  memory.add(cuda);
  const auto devices = memory.finish(numbered);
  REQUIRE(devices.size() == 2);
  CHECK(device_text(devices[1].type, devices[1].index) == "CUDA 3");
  CHECK(devices[1].peak_bytes == 99);
  CHECK(devices[1].failures == 1);
  CHECK(devices[1].largest_failure == int64_t{1} << 60);
  CHECK(devices[1].failed_in.op == "op2");
  CHECK(devices[0].failures == 0);
}

TEST_CASE("sizes that no machine has do not break the sums") {
  MemoryCollector memory;
  for (uint64_t i = 1; i < 9; ++i) memory.add(change(i, INT64_MAX, UINT64_MAX, 1));
  for (uint64_t i = 1; i < 9; ++i) memory.add(change(i, INT64_MIN, UINT64_MAX, 1));
  CHECK(memory.finish(numbered)[0].peak_bytes > 0);
}

TEST_CASE("sums of the CPU begin at the first total that its allocator told and go by time over all threads") {
  SpoolBuilder b;
  const TrackId one = b.thread(101), two = b.thread(102);
  b.on(one).at(10);
  memory(b, 0x1000, 100, 1100);  // 1000 were there before
  b.on(two).at(20);
  memory(b, 0x2000, 50, 9999);  // in the order of locks, which is another
  b.on(one).at(30);
  short_memory(b, 0x3000, 25);
  b.on(two).at(40);
  short_memory(b, 0x1000, -100);  // freed by another thread
  const auto devices = devices_of(b);
  CHECK(devices[0].peak_bytes == 1175);
  CHECK(devices[0].unknown_bytes == 1000);
  CHECK(devices[0].end_bytes == 1075);
}

TEST_CASE("after chunks that are gone the sum is again what the allocator tells") {
  SpoolBuilder b;
  b.on(b.thread(101)).at(10);
  memory(b, 0x1000, 100, 100);
  b.at(50).next_chunk(3, {}).at(60);
  memory(b, 0x2000, 50, 5050);
  b.at(70);
  short_memory(b, 0x3000, 25);
  const auto devices = devices_of(b);
  CHECK(devices[0].peak_bytes == 5075);
  CHECK(devices[0].unknown_bytes == 4900);
}

TEST_CASE("a line belongs to one block alone") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  b.on(b.thread(101)).at(10).begin(f);
  b.raw(static_cast<uint8_t>(Kind::AllocationSite), {f.value | uint64_t{33} << 32});
  memory(b, 0x1000, 100, 100);
  memory(b, 0x2000, 50, 150);
  CHECK(shares(devices_of(b)[0]) == "\n|||test.py(33): f 100 in 1\n|||test.py(1): f 50 in 1\n");
}

TEST_CASE("mapped files and shared memory count to the peak and not to what the allocator counts") {
  SpoolBuilder b;
  b.on(b.thread(101)).at(10);
  memory(b, 0x1000, 100, 100);
  b.at(20);
  memory(b, 0x2000, 4096, 0, 4096);
  b.at(30);
  short_memory(b, 0x3000, 10);
  b.at(40);
  memory(b, 0x2000, -4096, 0);
  b.at(50);
  memory(b, 0x7000, -512, 0);  // a mapping from before the capture
  const auto devices = devices_of(b);
  CHECK(devices[0].peak_bytes == 4206);
  CHECK(devices[0].peak_mapped_bytes == 4096);
  CHECK(devices[0].end_bytes == 110);
  b.clean_exit(100);
  const test::LoadedTrace trace(b);
  std::string page;
  Output out(page);
  write_html(*trace, out);
  out.commit();
  // The chart's most is the table's peak.
  CHECK(page.find("\"peak_bytes\":4206,\"peak_mapped_bytes\":4096,") != std::string::npos);
  const size_t chart = page.find("\"memory\":[{\"label\":\"CPU");
  REQUIRE(chart != std::string::npos);
  const std::string line = page.substr(chart, page.find("]}", chart) - chart);
  CHECK((line.find(",4206,") != std::string::npos && line.find(",110") != std::string::npos));
  CHECK(summary_text(*trace, {.tables = {"memory"}})
            .find("4.00 KiB of it are mapped files and shared memory, which torch's allocator does not count") !=
        std::string::npos);
}

TEST_CASE("a block belongs to the module, the operators, the function and the line that ran on its thread") {
  SpoolBuilder b;
  const FunctionId forward = b.function("model.py", 30, "forward");
  const FunctionId call = b.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId helper = b.function("helper.py", 5, "helper");
  const ObjectId linear = b.object("Linear");
  b.on(b.thread(101)).at(10).begin(call, linear).begin(forward).annotation(1, "mine").op(2, "aten::linear");
  b.op(3, "aten::addmm").at(20);
  b.raw(static_cast<uint8_t>(Kind::AllocationSite), {forward.value | uint64_t{33} << 32});
  memory(b, 0x1000, 100, 100);
  b.at(30).op_end(3).op_end(2);
  memory(b, 0x2000, 50, 150);
  b.op_end(1).begin(helper).at(40);
  memory(b, 0x3000, 25, 175);
  b.end(helper).end(forward).end(call).at(50);
  memory(b, 0x4000, 5, 180);
  CHECK(shares(devices_of(b)[0]) == R"(
nn.Module: Linear_0|aten::linear|aten::addmm|model.py(33): forward 100 in 1
nn.Module: Linear_0||mine|model.py(30): forward 50 in 1
nn.Module: Linear_0|||helper.py(5): helper 25 in 1
||| 5 in 1
)");
}

TEST_CASE("operators have what they allocated less what they freed themselves") {
  SpoolBuilder b;
  b.on(b.thread(101)).at(10).op(1, "outer");
  memory(b, 0x1000, 100, 100);
  b.at(20).op(2, "inner");
  memory(b, 0x2000, 50, 150);
  memory(b, 0x1000, -100, 50);
  memory(b, 0x5000, 7, 7, 7, 1);  // CUDA 0
  b.at(30).op_end(2).op_end(1);
  const test::LoadedTrace trace(b);
  const Statistics statistics = statistics_of(trace->processes.at(0));
  CHECK(statistics.operators.at("outer").cpu_bytes == 100);
  CHECK(statistics.operators.at("inner").cpu_bytes == -50);
  CHECK(statistics.operators.at("inner").device_bytes == 7);
}

TEST_CASE("what a forked process has from its parent is not its own, and freeing that takes nothing from its own") {
  const auto devices = [](const char* forked_from) {
    SpoolBuilder b;
    std::strcpy(b.header().forked_from, forked_from);
    b.on(b.thread(100)).at(10);
    memory(b, 0x1000, 100, 1100);
    memory(b.at(20), 0x2000, 50, 1150);
    memory(b.at(30), 0x9000, -400, 750);  // a block of its parent's
    memory(b.at(40), 0x3000, 30, 780);
    memory(b.at(50), 0x1000, -100, 680);
    return devices_of(b);
  };
  const DeviceMemory child = devices("parent.spool").at(0), other = devices("").at(0);
  CHECK(child.peak_bytes == 180);
  CHECK(child.end_bytes == 80);
  CHECK(child.unknown_bytes == 0);
  CHECK(other.peak_bytes == 1150);
  CHECK(other.end_bytes == 680);
  CHECK(other.unknown_bytes == 1000);
}

TEST_CASE("the end of a mapping from before the capture takes nothing from what was mapped since") {
  MemoryCollector collector;
  const auto map = [&collector](uint64_t address, int64_t bytes) {
    MemoryChange e = change(address, bytes, 0);
    e.is_mapped = true;
    collector.add(e);
    return collector.finish(numbered).at(0).end_bytes;
  };
  CHECK(map(1, 100) == 100);
  CHECK(map(2, -60) == 100);
  CHECK(map(1, -100) == 0);
}

TEST_CASE("what lived when a window closed is nobody's in the next one: its end may not have been recorded") {
  SpoolBuilder b;
  b.window(1, 0, 0, 100);
  b.window(2, 9, 200, 300);
  const TrackId thread = b.thread(101);
  b.in_window(1).on(thread).at(10).op(1, "first");
  memory(b, 0x1000, 500, 500);          // freed between the windows
  memory(b, 0x9000, 700, 700, 700, 1);  // CUDA 0: its allocator counts always
  b.at(20).op_end(1);
  b.in_window(2).on(thread).at(210).op(2, "second");
  memory(b, 0x2000, 60, 560);  // torch still counts the block of the first window
  short_memory(b, 0x3000, 7);
  memory(b, 0xa000, 200, 800, 900, 1);  // 100 of the first window, or of after it, are still there
  b.at(220).op_end(2);
  const auto devices = devices_of(b);
  CHECK(devices[0].peak_bytes == 500);
  CHECK(devices[0].end_bytes == 67);
  CHECK(devices[0].has_windows);
  CHECK(devices[1].peak_bytes == 800);
  CHECK(shares(devices[1]) == "\n|second|second| 200 in 1\n");
  CHECK(devices[1].unknown_bytes == 600);
}

TEST_CASE("a window that begins with a mapping has nothing of the windows before it") {
  SpoolBuilder b;
  b.window(1, 0, 0, 100);
  b.window(2, 9, 200, 300);
  const TrackId thread = b.thread(101);
  b.in_window(1).on(thread).at(10);
  memory(b, 0x1000, 500, 500);
  b.in_window(2).on(thread).at(210);
  memory(b, 0x2000, 4096, 0, 4096);  // a mapping
  const auto devices = devices_of(b);
  CHECK(devices[0].peak_bytes == 4096);
  CHECK(devices[0].end_bytes == 4096);
  CHECK(devices[0].unknown_bytes == 0);
}

}  // namespace memory_test
