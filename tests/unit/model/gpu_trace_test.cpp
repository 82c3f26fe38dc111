// GPU activity as it comes out of a spool: in place, joined, and as Kineto writes it.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "formats/gpu/occupancy.h"
#include "formats/trace/gpu_index.h"
#include "formats/write/kineto/kineto.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/spool_builder.h"

namespace gpu_trace_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;
using nlohmann::json;
using test::SpoolBuilder;

namespace {

std::string kineto(const Trace& trace, Processes processes) { return test::written(trace, processes, write_kineto); }

json events_of(const Trace& trace) { return json::parse(kineto(trace, trace.processes)).at("traceEvents"); }

std::vector<json> of(const json& events, std::string_view category) {
  std::vector<json> found;
  for (const json& e : events)
    if (e.contains("cat") && e["cat"] == category) found.push_back(e);
  return found;
}

json named(const json& events, std::string_view name, std::string_view phase = "X") {
  for (const json& e : events)
    if (e["name"] == name && e["ph"] == phase) return e;
  FAIL("no event ", std::string(name));
  return {};
}

}  // namespace

TEST_CASE("a step on a GPU, as Kineto writes it") {
  Program p;
  SpoolBuilder& b = p.b;
  const FunctionId module_call = b.function("m.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  b.detail(linear, linear, "head");
  b.at(1'000).annotation(1, "train").at(2'000).begin(module_call, linear);
  b.at(3'000).op(2, "aten::linear", {.sequence = 5}).at(9'000).op_end(2).at(10'000).end(module_call);
  b.at(11'000).op(3, "aten::copy_").at(15'000).op_end(3).at(20'000).op_end(1);
  b.at(21'000).op(4, "AddmmBackward0", {OpScope::kBackwardFunction, 5, 1}).at(29'000).op_end(4);
  p.deliver();
  GpuCopy copy{};
  copy.start = SpoolBuilder::cupti(16'000);
  copy.end = SpoolBuilder::cupti(18'000);
  copy.bytes = 4096;
  copy.correlation = 12;
  copy.context = 1;
  copy.stream = 7;
  copy.copy_kind = 1;
  copy.src_kind = 2;
  copy.dst_kind = 3;
  copy.src_device = copy.dst_device = copy.src_context = copy.dst_context = kNoGpuNumber;
  GpuSet set{};
  set.start = SpoolBuilder::cupti(18'500);
  set.end = SpoolBuilder::cupti(18'700);
  set.bytes = 64;
  set.correlation = 13;
  set.context = 1;
  set.stream = 7;
  set.memory_kind = 3;
  GpuOverhead flush{};
  flush.start = SpoolBuilder::cupti(40'000);
  flush.end = SpoolBuilder::cupti(41'000);
  flush.kind = 1 << 16;
  b.gpu(kernel(b, 26'000, 27'000, 14, "_Z4gradPf")).gpu(copy).gpu(kernel(b, 6'500, 8'500, 11)).gpu(set).gpu(flush);
  b.gpu(call(100, 22'000, 23'000, 14))
      .gpu(call(100, 4'000, 5'500, 11))
      .gpu(call(100, 12'000, 12'500, 12, kMemcpyAsync));
  b.gpu(call(100, 13'000, 13'200, 13, 51)).gpu(call(100, 3'500, 3'600, 10, kGetDevice));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const std::string text = kineto(*trace, trace->processes);
  test::check_golden("kineto_gpu.json",
                     std::regex_replace(text, std::regex(R"("version":"[^"]*")"), R"("version":"*")"));
  const json events = json::parse(text).at("traceEvents");
  const json forward = named(events, "gemm(float*)"), backward = named(events, "grad(float*)");
  CHECK(forward["args"]["External id"] == named(events, "aten::linear")["args"]["External id"]);
  CHECK(backward["args"]["External id"] == named(events, "AddmmBackward0")["args"]["External id"]);
  CHECK(forward["args"]["Module"] == "nn.Module: Linear_0");
  CHECK(backward["args"]["Module path"] == "head");
  CHECK(backward["args"]["Backward"] == true);
  CHECK(forward["args"]["queue time (us)"] == 1.0);
  CHECK(of(events, "cuda_runtime").size() == 4);  // cudaGetDevice is not written
}

TEST_CASE("a kernel that a collective launched has its arguments, no other has") {
  Program p;
  SpoolBuilder& b = p.b;
  using namespace std::string_literals;
  // send() of collectives_test, as the recorder encodes it.
  const StringId info = b.string(
      "\4send\1"
      "0\12default_pg"s +
      "\2\10\17\22\0\0\2\2\4\6\4\4\6\12\16\22\1"s);
  b.at(1'000).op(1, "record_param_comms").raw(44, {info.value, 17}).at(5'000).op_end(1);
  b.at(6'000).op(2, "aten::mm").at(9'000).op_end(2);
  p.deliver();
  b.gpu(kernel(b, 3'000, 4'000, 11, "_Z4sendPf")).gpu(kernel(b, 8'000, 8'500, 12));
  b.gpu(call(100, 2'000, 2'500, 11)).gpu(call(100, 7'000, 7'500, 12));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json events = events_of(*trace);
  const json args = named(events, "send(float*)")["args"];
  CHECK(args.value("Collective name", "") == "send");
  CHECK(args.value("Group size", 0) == 4);
  CHECK(args.value("Seq", 0) == 17);
  CHECK(!named(events, "gemm(float*)")["args"].contains("Collective name"));
}

TEST_CASE("work that ends out of order belongs to its own call, on its own stream and device") {
  Program p;
  SpoolBuilder& b = p.b;
  b.device(h100(1), "NVIDIA H100");
  for (uint32_t i = 0; i < 6; ++i) {
    b.at(1'000 + i * 10'000).op(i + 1, numbered("aten::op", i)).at(6'000 + i * 10'000).op_end(i + 1);
  }
  p.deliver();
  for (uint32_t i = 6; i-- > 0;) {
    b.gpu(kernel(b, 200'000 - i * 1'000, 200'400 - i * 1'000, i + 1, numbered("k", i), i % 2, 7 + i / 2));
    b.gpu(call(100, 2'000 + i * 10'000, 3'000 + i * 10'000, i + 1));
  }
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json events = events_of(*trace);
  std::set<std::pair<int, int>> rows;
  for (uint32_t i = 0; i < 6; ++i) {
    const json k = named(events, numbered("k", i));
    CHECK(k["args"]["External id"] == named(events, numbered("aten::op", i))["args"]["External id"]);
    rows.emplace(k["pid"], k["tid"]);
  }
  CHECK(rows.size() == 6);
  std::multiset<int> starts, ends;
  for (const json& e : of(events, "ac2g")) (e["ph"] == "s" ? starts : ends).insert(e["id"].get<int>());
  CHECK(starts == std::multiset<int>{1, 2, 3, 4, 5, 6});
  CHECK(starts == ends);
}

TEST_CASE("what begins before it was launched is said, and counted") {
  Program p;
  p.b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  p.deliver();
  p.b.gpu(call(100, 3'000, 4'000, 1)).gpu(kernel(p.b, 2'400, 5'000, 1)).clean_exit(1'000'000);
  const test::LoadedTrace trace(p.b);
  const json top = json::parse(kineto(*trace, trace->processes));
  const json faults = top["torchprof"]["processes"][0]["gpu"]["clock_faults"];
  CHECK(faults == json{{"begin_before_launch", 1}, {"most_ns", 600}});
  CHECK(named(top["traceEvents"], "gemm(float*)")["args"]["before launch (us)"] == 0.6);
}

TEST_CASE("CUPTI's clock is converted by its samples, between them evenly") {
  Program p;
  p.b.at(1'000).op(1, "aten::mm").at(500'000).op_end(1);
  p.deliver();
  p.b.at(10'000).gpu_clock(1'000).at(810'000).gpu_clock(9'000);
  p.b.at(900'000).gpu(call(100, 411'000, 412'000, 1)).gpu(kernel(p.b, 505'000 + 5'950, 600'000, 1));
  p.b.clean_exit(1'000'000);
  const test::LoadedTrace trace(p.b);
  CHECK(named(events_of(*trace), "gemm(float*)")["dur"] == 89.05);  // as CUPTI has it
  const GpuTime& time = trace->processes[0].gpu->time();
  CHECK(time.samples() == 2);
  CHECK(time.to_unix(SpoolBuilder::cupti(11'000)) == test::kStartNs + 10'000);
  CHECK(time.to_unix(SpoolBuilder::cupti(415'000)) == test::kStartNs + 410'000);
  CHECK(time.to_unix(SpoolBuilder::cupti(2'000)) == test::kStartNs + 1'000);
  CHECK(time.to_unix(SpoolBuilder::cupti(909'000)) == test::kStartNs + 900'000);
}

TEST_CASE("calls nest with the slices of their thread, whatever the clocks say") {
  Program p;
  SpoolBuilder& b = p.b;
  b.at(10'000).op(1, "aten::a").at(20'000).op_end(1).at(30'000).op(2, "aten::b").at(40'000).op_end(2);
  p.deliver();
  b.gpu(call(100, 19'000, 20'300, 1)).gpu(kernel(b, 21'000, 22'000, 1, "first"));
  b.gpu(call(100, 29'800, 33'000, 2)).gpu(kernel(b, 34'000, 35'000, 2, "second"));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json events = events_of(*trace);
  const auto calls = of(events, "cuda_runtime");
  REQUIRE(calls.size() == 2);
  const json a = named(events, "aten::a"), second = named(events, "aten::b");
  CHECK(calls[0]["args"]["External id"] == a["args"]["External id"]);
  CHECK(calls[0]["ts"].get<double>() + calls[0]["dur"].get<double>() <=
        a["ts"].get<double>() + a["dur"].get<double>() + 1e-6);
  CHECK(calls[1]["args"]["External id"] == second["args"]["External id"]);
  CHECK(calls[1]["ts"].get<double>() >= second["ts"].get<double>());
}

TEST_CASE("a graph's kernels belong to its launch; a driver call in a runtime call is not shown twice") {
  Program p;
  SpoolBuilder& b = p.b;
  b.at(1'000).op(1, "graph").at(9'000).op_end(1);
  p.deliver();
  for (uint64_t node = 1; node <= 3; ++node) {
    GpuKernel k = kernel(b, 5'000 + node * 100, 5'050 + node * 100, 1, numbered("node", node));
    k.graph = 4;
    k.graph_node = node;
    b.gpu(k);
  }
  b.gpu(call(100, 2'000, 4'000, 1, 311)).gpu(call(100, 2'500, 3'500, 1, kDriverLaunch, GpuApiKind::kDriver));
  b.gpu(call(100, 6'000, 7'000, 2, kDriverLaunch, GpuApiKind::kDriver)).gpu(kernel(b, 8'000, 8'500, 2, "triton"));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json events = events_of(*trace);
  CHECK(of(events, "cuda_runtime").size() == 1);
  CHECK(of(events, "cuda_runtime")[0]["name"] == "cudaGraphLaunch");
  CHECK(of(events, "cuda_driver").size() == 1);
  CHECK(of(events, "kernel").size() == 4);
  CHECK(named(events, "node3")["args"]["graph node id"] == 3);
  CHECK(of(events, "ac2g").size() == 1 + 3 + 2);
}

TEST_CASE("waits say which record of an event they wait for") {
  Program p;
  SpoolBuilder& b = p.b;
  b.at(1'000).op(1, "aten::wait").at(90'000).op_end(1);
  p.deliver();
  GpuEvent record{};
  record.context = 1;
  record.event = 3;
  record.stream = 7;
  record.correlation = 1;
  GpuSync wait{};
  wait.start = SpoolBuilder::cupti(12'000);
  wait.end = SpoolBuilder::cupti(13'000);
  wait.context = 1;
  wait.event = 3;
  wait.stream = 8;
  wait.type = 2;
  wait.correlation = 2;
  GpuSync stream = wait;
  stream.type = 3;
  stream.event = kNoGpuNumber;
  stream.correlation = 3;
  b.gpu(record).gpu(wait).gpu(stream).gpu(call(100, 10'000, 11'000, 1, kEventRecord));
  b.gpu(call(100, 12'000, 13'000, 2, kStreamWaitEvent)).gpu(call(100, 12'000, 13'000, 3, kStreamSynchronize));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json events = events_of(*trace);
  const json args = named(events, "Stream Wait Event")["args"];
  CHECK((args["wait_on_stream"] == 7 && args["wait_on_cuda_event_record_corr_id"] == 1 && args["stream"] == 8));
  CHECK(named(events, "Stream Sync")["tid"] == 1'000'008);
  const json recorded = named(events, "cudaEvent", "i");
  CHECK(recorded["args"]["event_id"] == 3);
  CHECK(!recorded.contains("dur"));
}

TEST_CASE("work of a stream that touches does not overlap, however the clocks drift") {
  Program p;
  SpoolBuilder& b = p.b;
  // In 800 us CUPTI's clock runs 1 us ahead.
  b.at(1'000).gpu_clock(0).at(801'000).gpu_clock(1'000);
  p.deliver();
  constexpr uint64_t kWork = 100;
  for (uint32_t i = 0; i < kWork; ++i)
    b.gpu(call(100, 2'000 + i * 10, 2'005 + i * 10, i + 1))
        .gpu(kernel(b, 10'000 + i * 7'777, 10'000 + (i + 1) * 7'777, i + 1, "touches"));
  b.clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const std::vector<json> work = of(events_of(*trace), "kernel");
  REQUIRE(work.size() == kWork);
  for (size_t i = 0; i < work.size(); ++i) {
    const double end = work[i]["ts"].get<double>() + work[i]["dur"].get<double>();
    CHECK(work[i]["dur"].get<double>() > 7.777 - 0.015);
    if (i + 1 == work.size()) break;
    const double gap = work[i + 1]["ts"].get<double>() - end;
    CHECK((gap > -0.0001 && gap < 0.0005));  // a double of the microseconds of a day is off by 0.00002
  }
}

TEST_CASE("calls of a thread that CUPTI names by its handle; of one that nobody knows; work without a call") {
  SpoolBuilder b;
  const TrackId main = b.thread(100, "main", 1), cupti = b.thread(900);
  b.thread_handle(main, 0xdead0740);
  b.on(main).at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  b.on(cupti).at(900'000).gpu(call(0xdead0740, 2'000, 3'000, 1)).gpu(call(77, 2'000, 3'000, 2));
  b.gpu(kernel(b, 4'000, 5'000, 1, "mine")).gpu(kernel(b, 6'000, 7'000, 2, "stranger's"));
  GpuKernel never = kernel(b, 0, 0, 4, "never");
  never.start = never.end = 0;
  b.gpu(kernel(b, 8'000, 8'500, 3, "orphan")).gpu(never);
  GpuDropped dropped{};
  dropped.count = 12;
  dropped.loss = GpuLoss::kDropped;
  b.gpu(dropped).clean_exit(1'000'000);
  const test::LoadedTrace trace(b);
  const json top = json::parse(kineto(*trace, trace->processes));
  const json& events = top["traceEvents"];
  CHECK(named(events, "mine")["args"].contains("External id"));
  const auto calls = of(events, "cuda_runtime");
  REQUIRE(calls.size() == 2);
  CHECK(calls[0]["tid"] == 100);
  CHECK(calls[1]["tid"] == 77);
  CHECK_FALSE(named(events, "stranger's")["args"].contains("External id"));
  CHECK_FALSE(named(events, "orphan")["args"].contains("queue time (us)"));
  CHECK(of(events, "kernel").size() == 3);
  CHECK(top["torchprof"]["processes"][0]["gpu"]["without_time"] == 1);
  CHECK(top["torchprof"]["processes"][0]["gpu"]["dropped"] == 12);
}

TEST_CASE("in the merged trace each process has its devices and correlations") {
  Program first, second({"/usr/bin/python3", "other.py"});
  for (Program* p : {&first, &second}) {
    p->b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
    p->deliver();
    p->b.gpu(call(100, 2'000, 3'000, 5)).gpu(kernel(p->b, 4'000, 5'000, 5)).clean_exit(1'000'000);
  }
  second.b.header().pid = 200;
  const SpoolBuilder* both[] = {&first.b, &second.b};
  const test::LoadedTrace trace(both);
  const json events = events_of(*trace);
  std::set<uint64_t> pids, flows;
  for (const json& k : of(events, "kernel")) pids.insert(k["pid"].get<uint64_t>());
  for (const json& f : of(events, "ac2g"))
    if (f["ph"] == "s") flows.insert(f["id"].get<uint64_t>());
  CHECK(pids.size() == 2);
  CHECK(flows.size() == 2);
}

TEST_CASE("windows: work of calls in one, also when it runs later; no other") {
  Program p;
  p.b.window(1, 0, 10'000, 20'000);
  p.b.on(p.main).at(1'000).op(1, "aten::before").at(2'000).op_end(1);
  p.b.at(11'000).op(2, "aten::inside").at(19'000).op_end(2);
  p.deliver();
  p.b.gpu(call(100, 1'200, 1'500, 1)).gpu(kernel(p.b, 3'000, 4'000, 1, "before"));
  p.b.gpu(call(100, 12'000, 13'000, 2)).gpu(kernel(p.b, 25'000, 26'000, 2, "inside"));
  p.b.gpu(kernel(p.b, 15'000, 16'000, 9, "unknown")).gpu(kernel(p.b, 45'000, 46'000, 10, "after"));
  p.b.clean_exit(1'000'000);
  const test::LoadedTrace trace(p.b);
  std::set<std::string> names;
  for (const json& k : of(events_of(*trace), "kernel")) names.insert(k["name"].get<std::string>());
  CHECK(names == std::set<std::string>{"inside", "unknown"});
}

TEST_CASE("occupancy: threads, registers and shared memory bound it") {
  SpoolBuilder b;
  const GpuDeviceDef device = h100(0);
  GpuKernel k = kernel(b, 0, 0, 0);
  k.grid[0] = 132 * 100;
  k.block[0] = 256;
  k.registers = 32;
  CHECK(occupancy_of(k, &device).active_blocks == 8);
  CHECK(occupancy_of(k, &device).achieved == 1.0);
  k.registers = 128;
  CHECK(occupancy_of(k, &device).active_blocks == 2);
  k.dynamic_shared = 200'000;
  CHECK(occupancy_of(k, &device).active_blocks == 1);
  CHECK(occupancy_of(k, &device).shared_per_block == 201'088);
  k.block[0] = 2048;
  CHECK(occupancy_of(k, &device).achieved == 0);
  CHECK(occupancy_of(k, nullptr).blocks_per_sm == 0);
}

}  // namespace gpu_trace_test
