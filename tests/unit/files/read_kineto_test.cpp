#include "formats/read/read_trace.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "formats/io/error.h"
#include "formats/report/summary.h"
#include "formats/write/format.h"
#include "tests/unit/support/spool_builder.h"

namespace read_kineto_test {

using namespace torchprof;
using namespace torchprof::formats;
namespace fs = std::filesystem;

namespace {

fs::path write(const fs::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::string error_of(const fs::path& file) {
  try {
    read_trace(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what operators were given is read as Kineto writes it") {
  using Json = nlohmann::json;
  constexpr std::pair<const char*, uint8_t> kTypes[] = {
      {"float", 6}, {"long int", 4}, {"c10::BFloat16", 15}, {"bool", 11}};
  std::mt19937 random(12);
  const auto below = [&random](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 20; ++round) {
    Json events = Json::array();
    std::vector<std::vector<Input>> expected;
    for (int64_t e = 0; e < 12; ++e) {
      Json dims = Json::array(), strides = Json::array(), types = Json::array(), concrete = Json::array();
      std::vector<Input>& inputs = expected.emplace_back();
      const auto tensor = [&](uint8_t type) {
        Tensor t{.is_readable = true, .type = type};
        for (int64_t d = below(4); d > 0; --d) t.sizes.push_back(below(1000));
        t.strides.assign(t.sizes.size(), 1);
        return t;
      };
      for (int64_t n = below(5); n >= 0; --n) {
        Input& input = inputs.emplace_back();
        Json dim = Json::array(), stride = Json::array(), type = "", text = "";
        switch (below(5)) {
          case 0: {
            const auto& [name, number] = kTypes[below(4)];
            input = {.kind = Input::Kind::kTensor, .tensors = {tensor(number)}};
            type = name;
            dim = input.tensors[0].sizes;
            stride = input.tensors[0].strides;
            break;
          }
          case 1:
            input.kind = Input::Kind::kTensorList;
            type = "TensorList";
            for (int64_t k = 1 + below(3); k > 0; --k) {
              input.tensors.push_back(tensor(6));
              dim.push_back(input.tensors.back().sizes);
              stride.push_back(input.tensors.back().strides);
            }
            break;
          case 2:
            input = {.kind = Input::Kind::kScalar, .text = std::to_string(below(9) - 4)};
            input.integers = {std::stoll(input.text)};
            type = "Scalar";
            text = input.text;
            break;
          case 3:
            input = {.kind = Input::Kind::kScalarList, .text = "[1, -2]", .integers = {1, -2}};
            type = "ScalarList";
            text = input.text;
            break;
          default:
            break;  // None, a device, a generator
        }
        dims.push_back(dim);
        strides.push_back(stride);
        types.push_back(type);
        concrete.push_back(text);
      }
      events.push_back({{"ph", "X"},
                        {"cat", "cpu_op"},
                        {"name", "aten::op"},
                        {"pid", 1},
                        {"tid", 1},
                        {"ts", e * 10},
                        {"dur", 5},
                        {"args",
                         {{"Input Dims", dims},
                          {"Sequence number", e},
                          {"Input Strides", strides},
                          {"Input type", types},
                          {"Concrete Inputs", concrete}}}});
    }
    test::TemporaryDirectory directory;
    const TraceFile read =
        read_trace(write(directory / "x.json", Json{{"traceEvents", events}}.dump()), {.has_timelines = true});
    const Timeline& timeline = read.processes.at(0).timeline;
    REQUIRE(timeline.rows.at(0).spans.size() == expected.size());
    for (size_t e = 0; e < expected.size(); ++e) {
      const TimelineSpan& span = timeline.rows[0].spans[e];
      CHECK(span.sequence == e + 1);
      const std::vector<Input>& inputs = timeline.inputs(span.inputs);
      REQUIRE(inputs.size() == expected[e].size());
      for (size_t i = 0; i < inputs.size(); ++i) {
        CHECK(inputs[i].kind == expected[e][i].kind);
        CHECK(inputs[i].text == expected[e][i].text);
        CHECK(inputs[i].integers == expected[e][i].integers);
        REQUIRE(inputs[i].tensors.size() == expected[e][i].tensors.size());
        for (size_t t = 0; t < inputs[i].tensors.size(); ++t) {
          CHECK(inputs[i].tensors[t].type == expected[e][i].tensors[t].type);
          CHECK(inputs[i].tensors[t].sizes == expected[e][i].tensors[t].sizes);
          CHECK(inputs[i].tensors[t].strides == expected[e][i].tensors[t].strides);
        }
      }
    }
  }
}

TEST_CASE("our own trace file gives the totals of the spool that it was made from") {
  test::SpoolBuilder b(100);
  b.thread(100, "python3", 1);
  const FunctionId f = b.function("f"), g = b.function("g");
  for (uint64_t i = 0; i < 50; ++i) {
    const uint64_t t = i * 1'000'000;
    b.at(t)
        .begin(f)
        .at(t + 100)
        .begin(f)
        .at(t + 200)
        .op(1, "aten::add")
        .at(t + 250)
        .op(2, "aten::empty")
        .at(t + 300)
        .op_end(2);
    b.at(t + 400).op_end(1).begin(g).at(t + 450).end(g).at(t + 500).end(f).at(t + 1000).end(f);
    b.annotation(3, "Optimizer.step#SGD.step").at(t + 1500 + i * 10).op_end(3);
  }
  const test::LoadedTrace trace(b);
  const Statistics expected = statistics_of(trace->processes[0]);
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.pt.trace.json.gz";
  write_file(*find_format("kineto"), *trace, trace->processes, file);
  const TraceFile read = read_trace(file);
  REQUIRE(read.processes.size() == 1);
  CHECK(read.processes[0].pid == "100");
  CHECK(read.processes[0].name == "python3");
  const Statistics& got = read.processes[0].statistics;
  CHECK(got.operators.size() == 3);
  for (const auto& [name, tally] : expected.operators) {
    CAPTURE(name);
    CHECK(got.operators.at(name).self_ns == tally.self_ns);
    CHECK(got.operators.at(name).total_ns == tally.total_ns);
    CHECK(got.operators.at(name).calls == tally.calls);
  }
  CHECK(got.python.at("test.py(1): f").total_ns == 50'000);
  CHECK(got.python.at("test.py(1): f").self_ns == 50'000 - 2'500);
  CHECK(got.steps.count == 50);
  CHECK(got.steps.ns == expected.steps.ns);
  CHECK(got.steps.ended_by == "Optimizer.step#SGD.step");
}

TEST_CASE("a trace of Kineto with its rows, strings for pids and nested args") {
  test::TemporaryDirectory directory;
  const TraceFile read = read_trace(write(directory / "x.json", R"json({
    "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "distributedInfo": {"rank": 0, "pg_config": [[1]]},
    "traceEvents": [
      {"ph":"M","name":"process_name","pid":7,"tid":0,"ts":1.0,"args":{"name":"python"}},
      {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":10.5,"dur":30,"args":{"Input Dims":[[2,3],[]],"name":"x","ts":5}},
      {"ph":"X","cat":"cpu_op","name":"aten::matmul","pid":7,"tid":7,"ts":10.5,"dur":50.25},
      {"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":7,"tid":7,"ts":0,"dur":100},
      {"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":7,"tid":7,"ts":100,"dur":200},
      {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":20,"dur":30},
      {"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":0,"dur":500},
      {"ph":"i","name":"Record Window End","pid":"","tid":"","ts":500}],
    "traceName": "x"})json"));
  REQUIRE(read.processes.size() == 1);
  const Statistics& s = read.processes[0].statistics;
  CHECK(read.processes[0].name == "python");
  CHECK(s.operators.at("aten::matmul").self_ns == 20'250);
  CHECK(s.operators.at("aten::mm").total_ns == 30'000);
  CHECK(s.operators.at("ProfilerStep*").calls == 2);
  CHECK(s.operators.at("ProfilerStep*").first_ns == 0);
  CHECK(s.steps.ns == std::vector<int64_t>{100'000, 200'000});
  CHECK(read.wall_ns == 300'000);
}

TEST_CASE("calls of CUDA are a table of their own, and no operator's self time") {
  test::TemporaryDirectory directory;
  // A driver's call lies in one of the runtime; one call is beyond its operator; one thread has calls alone.
  const TraceFile read = read_trace(write(directory / "x.json", R"json({"traceEvents": [
      {"ph":"X","cat":"user_annotation","name":"block","pid":7,"tid":7,"ts":0,"dur":100},
      {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":10,"dur":30},
      {"ph":"X","cat":"cuda_driver","name":"cuLaunchKernel","pid":7,"tid":7,"ts":12,"dur":5,"args":{"correlation":1}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":11,"dur":9,"args":{"correlation":1}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaMalloc","pid":7,"tid":7,"ts":35,"dur":7,"args":{"correlation":2}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":7,"tid":7,"ts":50,"dur":20},
      {"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":7,"tid":7,"ts":200,"dur":1},
      {"ph":"X","cat":"cuda_runtime","name":"cudaGetDevice","pid":7,"tid":8,"ts":20,"dur":2}]})json"));
  REQUIRE(read.processes.size() == 1);
  const Statistics& s = read.processes[0].statistics;
  CHECK(s.operators.at("aten::mm").self_ns == 30'000 - 9'000 - 5'000);
  CHECK(s.operators.at("aten::mm").total_ns == 30'000);
  CHECK(s.operators.at("block").self_ns == 100'000 - 30'000 - 20'000);
  CHECK(s.operator_ns == 100'000);
  CHECK(s.calls.size() == 5);
  CHECK(s.calls.at("cudaLaunchKernel").total_ns == 9'000);
  CHECK(s.calls.at("cuLaunchKernel").total_ns == 5'000);
  CHECK(s.calls.at("cuLaunchKernel").self_ns == 0);
  CHECK(s.calls.at("cudaDeviceSynchronize").calls == 2);
  CHECK(s.calls.at("cudaDeviceSynchronize").total_ns == 21'000);
  CHECK(s.calls.at("cudaGetDevice").total_ns == 2'000);
}

TEST_CASE("what touches does not overlap, however large the times are") {
  test::TemporaryDirectory directory;
  for (const char* begin : {"1", "4421060716", "1790000000000"}) {
    CAPTURE(begin);
    std::string text = "[";
    for (int i = 0; i < 1000; ++i) {
      // "f" with 1 ns of its own before "enter", "block" from where that ends, and "inside" in it.
      const auto event = [&](const char* category, const char* name, int from, int ns) {
        char rest[160];
        snprintf(rest, sizeof(rest), "%03d.%03d,\"dur\":0.%03d,\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\"},", i, from,
                 ns, category, name);
        text += std::string(R"({"pid":1,"tid":1,"ts":)") + begin + rest;
      };
      event("python_function", "f", 0, 900);
      event("python_function", "enter", 1, i % 300 + 1);
      event("user_annotation", "block", i % 300 + 2, 500);
      event("python_function", "inside", i % 300 + 3, 100);
    }
    text.back() = ']';
    const TraceFile read = read_trace(write(directory / "x.json", text));
    REQUIRE(read.processes.size() == 1);
    const CallTallies& python = read.processes[0].statistics.python;
    CHECK(python.at("inside").self_ns == 100'000);
    CHECK(python.at("enter").self_ns == python.at("enter").total_ns);
    CHECK(python.at("f").self_ns == 900'000 - 100'000 - python.at("enter").total_ns);
  }
}

TEST_CASE("what is left of a step at the end of a recording is no step") {
  test::TemporaryDirectory directory;
  // Steps of 100 us with ten operators; the last is `us` long, with so many operators, and with an optimizer or not.
  const auto steps_with_last = [&](int us, int operators, bool others_optimize, bool optimizes) {
    std::string text = "[";
    const auto event = [&text](const char* category, const std::string& name, int begin, int length) {
      text.append("{\"ph\":\"X\",\"pid\":7,\"tid\":7,\"cat\":\"")
          .append(category)
          .append("\",\"name\":\"")
          .append(name);
      text.append("\",\"ts\":")
          .append(std::to_string(begin))
          .append(",\"dur\":")
          .append(std::to_string(length))
          .append("},");
    };
    for (int i = 0; i < 4; ++i) {
      const bool is_last = i == 3;
      event("user_annotation", "ProfilerStep#" + std::to_string(i), i * 100, is_last ? us : 100);
      for (int k = 0; k < (is_last ? operators : 10); ++k) event("cpu_op", "aten::mm", i * 100 + k, 1);
      if (is_last ? optimizes : others_optimize) event("user_annotation", "Optimizer.step#SGD.step", i * 100 + 12, 1);
    }
    text.back() = ']';
    return read_trace(write(directory / "x.json", text)).processes[0].statistics.steps.count;
  };
  CHECK(steps_with_last(100, 10, true, true) == 4);
  CHECK(steps_with_last(20, 10, true, true) == 4);    // it is only short
  CHECK(steps_with_last(100, 7, false, false) == 4);  // it may be one that does less
  CHECK(steps_with_last(90, 10, true, false) == 3);   // the recording ended before the optimizer
  CHECK(steps_with_last(100, 4, false, false) == 3);
  CHECK(steps_with_last(1, 0, false, false) ==
        3);  // what torch.profiler without a schedule leaves after the last step()
}

TEST_CASE("sums of hostile times stay at the largest number") {
  const test::TemporaryDirectory directory;
  std::string events;
  for (const char* tid : {"1", "2", "3"})
    for (const char* what : {R"("cat":"cpu_op","name":"mm")", R"("cat":"kernel","name":"gemm")",
                             R"("cat":"python_function","name":"nn.Module: L_0")"})
      events.append(R"({"ph":"X","pid":1,"ts":0,"dur":4000000000000000,"tid":)")
          .append(tid)
          .append(",")
          .append(what)
          .append(R"(,"args":{"External id":7}},)");
  events += R"({"ph":"X","pid":1,"ts":-1152921504606846.976,"dur":1,"tid":4,"cat":"cpu_op","name":"add","args":{}})";
  std::ofstream(directory / "x.json") << "[" << events << "]";
  const TraceFile read = read_trace(directory / "x.json");
  const Statistics& all = read.processes[0].statistics;
  CHECK(read.wall_ns == 5'152'921'504'606'846'976);
  CHECK(read.impossible == 0);
  CHECK(all.operator_ns == INT64_MAX);
  CHECK(all.operators.at("mm").self_ns == INT64_MAX);
  CHECK(all.operators.at("mm").gpu_self_ns == INT64_MAX);
  CHECK(all.gpu.work.at("gemm").total_ns == INT64_MAX);
}

TEST_CASE("the bare list that torch writes without Kineto") {
  test::TemporaryDirectory directory;
  const TraceFile read = read_trace(write(
      directory / "x.json",
      R"([{"name": "aten::add", "ph": "X", "ts": 573, "dur": 49, "tid": 1, "pid": "CPU functions", "args": {}}])"));
  REQUIRE(read.processes.size() == 1);
  CHECK(read.processes[0].pid == "CPU functions");
  CHECK(read.processes[0].statistics.operators.at("aten::add").self_ns == 49'000);
}

TEST_CASE("what cannot be read is one clear error") {
  test::TemporaryDirectory directory;
  const auto prefix = [&](const char* name) { return "cannot read the trace " + (directory / name).string() + ": "; };
  CHECK(error_of(directory / "none.json") == prefix("none.json") + "No such file or directory");
  CHECK(error_of(write(directory / "empty.json", "")) == prefix("empty.json") + "it is empty");
  CHECK(error_of(write(directory / "text.json", "hello")).find(prefix("text.json") + "it is not JSON at byte 1: ") ==
        0);
  CHECK(error_of(write(directory / "cut.json", R"({"traceEvents":[{"ph":"X",)")) ==
        prefix("cut.json") + "it is cut off after 26 bytes");
  CHECK(error_of(write(directory / "other.json", R"({"a":1})")) == prefix("other.json") + "it has no traceEvents");
  CHECK(error_of(write(directory / "more.json", R"({"traceEvents":[]} x)"))
            .find(prefix("more.json") + "it is not JSON at byte ") == 0);
  CHECK(error_of(write(directory / "utf.json", "[{\"name\":\"\xff\"}]"))
            .find(prefix("utf.json") + "it is not JSON at byte ") == 0);
  // Memory over time, and other lists.
  for (const char* text :
       {"[[1, 2], [[3], [4]]]", R"([{"name":"x"}])", R"({"traceEvents":[{"a":{"ph":"X"}}]})", "[]"}) {
    CAPTURE(text);
    CHECK(error_of(write(directory / "none.json", text)) ==
          prefix("none.json") + "it is JSON, but no trace: it has no events");
  }
  const fs::path whole = directory / "whole.json.gz";
  {
    Output out(whole);
    out.write("{\"traceEvents\":[" + std::string(100'000, ' ') + "]}");
    out.commit();
  }
  const std::string bytes = test::read_file(whole);
  CHECK(error_of(whole) == "no error");
  for (const size_t size : {bytes.size() - 4, bytes.size() / 2, size_t{12}}) {
    CHECK(error_of(write(directory / "cut.gz", bytes.substr(0, size))) ==
          prefix("cut.gz") + "the compressed file is cut off");
  }
}

TEST_CASE("hostile JSON ends in an error or in totals, never in a crash") {
  test::TemporaryDirectory directory;
  for (const char* text :
       {R"([{"ph":"X","name":"a","ts":1e300,"dur":1},{"ph":"X","name":"a","ts":1,"dur":-5},{"ph":"X","ts":0,"dur":0}])",
        R"({"traceEvents":{"ph":"X"}})", R"([[[[[{"ph":"X","ts":1,"dur":2}]]]]])",
        R"({"a":{"traceEvents":[{"ph":"X"}]}})", R"([{"ph":"X","cat":[],"ts":"5","dur":"7","pid":{},"tid":null}])",
        R"([{"name":{"name":1}}])", "[]", "{}", "1"}) {
    CAPTURE(text);
    CHECK(error_of(write(directory / "x.json", text)).size() > 0);
  }
}

TEST_CASE("a file of 2021: whole microseconds since 1970, categories in capitals") {
  test::TemporaryDirectory directory;
  const TraceFile read = read_trace(write(directory / "x", R"json({"schemaVersion": 1, "traceEvents": [
      {"ph":"X","cat":"Operator","name":"aten::linear","pid":7,"tid":"7","ts":1621403029386001,"dur":30,"args":{"external id":3}},
      {"ph":"X","cat":"Operator","name":"aten::addmm","pid":7,"tid":"7","ts":1621403029386003,"dur":28,"args":{"external id":4}},
      {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":7,"tid":"7","ts":1621403029386005,"dur":5,"args":{"external id":4}},
      {"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":"stream 7","ts":1621403029386020,"dur":6,"args":{"device":0,"external id":4}},
      {"ph":"X","cat":"Memcpy","name":"Memcpy HtoD","pid":0,"tid":"stream 7","ts":1621403029386030,"dur":2,"args":{"external id":3}}
      ]})json"));
  REQUIRE(read.processes.size() == 1);
  const Statistics& s = read.processes[0].statistics;
  CHECK(s.operators.at("aten::linear").self_ns == 2'000);  // both end at the same microsecond
  CHECK(s.operators.at("aten::addmm").gpu_self_ns == 6'000);
  CHECK(s.operators.at("aten::linear").gpu_total_ns == 8'000);
  CHECK(s.gpu.work.at("gemm").is_kernel);
  CHECK(read.start.value == 1'621'403'029'386'001'000);
}

TEST_CASE("work belongs to the operator around its call, whatever its External id says") {
  test::TemporaryDirectory directory;
  // As files before torch 1.12: the External id of work is its correlation. Here the one of a stranger.
  const TraceFile read = read_trace(write(directory / "x", R"json({"traceEvents": [
      {"ph":"X","cat":"cpu_op","name":"aten::to","pid":7,"tid":8,"ts":1,"dur":2,"args":{"External id":12}},
      {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":7,"tid":7,"ts":10,"dur":30,"args":{"External id":1}},
      {"ph":"X","cat":"cpu_op","name":"aten::addmm","pid":7,"tid":7,"ts":11,"dur":20,"args":{"External id":2}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":11,"dur":20,"args":{"correlation":12}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":7,"tid":7,"ts":35,"dur":2,"args":{"correlation":1}},
      {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":50,"dur":2,"args":{"correlation":2}},
      {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":60,"dur":6,"args":{"correlation":12,"External id":12}},
      {"ph":"X","cat":"gpu_memcpy","name":"copy","pid":0,"tid":7,"ts":70,"dur":2,"args":{"correlation":1,"External id":1}},
      {"ph":"X","cat":"kernel","name":"outside","pid":0,"tid":7,"ts":80,"dur":9,"args":{"correlation":2,"External id":2}},
      {"ph":"X","cat":"kernel","name":"before","pid":0,"tid":7,"ts":2,"dur":9,"args":{"correlation":99,"External id":2}}
      ]})json"));
  REQUIRE(read.processes.size() == 1);
  const Statistics& s = read.processes[0].statistics;
  CHECK(s.operators.at("aten::to").gpu_total_ns == 0);
  CHECK(s.operators.at("aten::addmm").gpu_self_ns == 6'000);
  CHECK(s.operators.at("aten::linear").gpu_self_ns == 2'000);
  CHECK(s.operators.at("aten::linear").gpu_total_ns == 8'000);
  CHECK(s.gpu.work.size() == 4);
}

TEST_CASE("what has times that no program has is left out and counted") {
  const test::TemporaryDirectory directory;
  std::string events = R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":2,"cat":"cpu_op","name":"mm"})";
  for (const char* times : {R"("ts":4000000000000001,"dur":0)", R"("ts":1,"dur":4e15)", R"("ts":1,"dur":-5)",
                            R"("ts":-1152921504606846.977,"dur":1)", R"("ts":1e300,"dur":1)", R"("ts":"nan","dur":1)",
                            R"("ts":18446744073709551615,"dur":1)", R"("ts":1,"dur":-9223372036854775808)"})
    for (const char* category : {"cpu_op", "kernel"})
      events.append(R"(,{"ph":"X","pid":1,"tid":1,"name":"no",)")
          .append(times)
          .append(R"(,"cat":")")
          .append(category) += "\"}";
  const fs::path file = write(directory / "x.json", "[" + events + "]");
  const TraceFile read = read_trace(file);
  CHECK(read.impossible == 16);
  CHECK(read.wall_ns == 2'000);
  CHECK(summary_text(file).find("16 events left out for impossible times (out of range, or an end before the begin)") !=
        std::string::npos);
}

TEST_CASE("hostile numbers and texts are read or refused") {
  test::TemporaryDirectory directory;
  const auto events = [&](const std::string& text) {
    return write(
        directory / "x",
        R"({"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}, )" + text + "]}");
  };
  const auto slices = [&](const std::string& text) {
    return read_trace(events(text)).processes.at(0).statistics.slices;
  };
  CHECK(slices(R"({"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":1e300,"dur":1e300})") == 1);
  CHECK(slices(R"({"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":-1e300,"dur":-5})") == 1);
  CHECK(
      slices(
          R"({"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":18446744073709551615,"dur":9223372036854775807})") ==
      1);
  CHECK(slices(R"({"ph":"X","cat":"cpu_op","name":"b","name":"c","pid":1,"tid":1,"ts":1,"ts":2,"dur":1})") == 2);
  CHECK(slices(R"({"ph":"X","cat":"cpu_op","name":"\u0000\u001b","pid":{"a":[1]},"tid":null,"ts":2,"dur":1})") == 1);
  CHECK(error_of(events(R"({"ph":"X","ts":NaN})")).find("it is not JSON at byte") != std::string::npos);
  for (const char* text : {R"({"name":"\ud800"})", "{\"name\":\"\x01\"}", "{\"name\":\"\xff\"}"})
    CHECK(error_of(events(text)).find("it is not JSON at byte") != std::string::npos);
  CHECK(slices(R"({"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":1,"dur":1,"args":{"x":1e999}})") == 2);
  CHECK(slices(std::string(900, '[') + std::string(900, ']')) == 1);
  for (const std::string& deep : {std::string(200'000, '[') + std::string(200'000, ']'), std::string(1'000'000, '[')})
    CHECK(error_of(write(directory / "deep", deep)).find("it is not JSON at byte 1001: too deep") != std::string::npos);
}

}  // namespace read_kineto_test
