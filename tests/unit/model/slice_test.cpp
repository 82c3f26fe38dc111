// A part of a run: what is in it, what is cut, and that it adds up.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "formats/io/error.h"
#include "formats/replay/replay.h"
#include "formats/replay/slice_request.h"
#include "formats/write/kineto/kineto.h"
#include "formats/write/stacks.h"
#include "tests/unit/support/gpu_program.h"

namespace slice_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// f calls g from 2 to 4 us and aten::mm from 6 to 9; a worker runs aten::add.
std::string stacks_of(const SliceRequest& request) {
  SpoolBuilder b(100, {"python3"});
  const TrackId main = b.thread(100, "main"), worker = b.thread(101, "worker");
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(main).at(1'000).begin(f).at(2'000).begin(g).at(4'000).end(g);
  b.at(6'000).op(1, "aten::mm").at(9'000).op_end(1).at(10'000).end(f);
  b.on(worker).at(3'000).op(2, "aten::add").at(8'000).op_end(2).clean_exit(20'000);
  const test::LoadedTrace loaded(b);
  Trace trace = *loaded;
  select(request, trace);
  return test::written(trace, write_stacks);
}

// A rank whose main thread calls aten::mm from 10 to 40 us and whose worker calls aten::add from 50 to 90: each tells
// NVTX of a moment, allocates memory and launches a kernel, which runs after it. Texts and numbers tell them apart.
void work(SpoolBuilder& b, uint32_t rank) {
  const uint32_t tid = 100 * (rank + 1);
  const std::string suffix = std::to_string(rank);
  b.meta("environment.RANK", suffix);
  b.meta("cupti.thread", "system");
  b.device(test::h100(0), "NVIDIA H100");
  b.context(1, 0, 7);
  const TrackId main = b.thread(tid, "main", 1), worker = b.thread(tid + 1, "worker", 2), cupti = b.thread(tid + 9);
  const auto part = [&](const char* what, uint64_t t, uint64_t end) {
    b.at(t).op(t, std::string("aten::").append(what) + suffix).at(t + 5'000);
    b.raw(static_cast<uint8_t>(Kind::NvtxMark),
          {b.string(std::string("mark ").append(what) + suffix).value, 0, 0, 0, 0});
    b.raw(static_cast<uint8_t>(Kind::Memory), {t, t + rank, t, 0, 0xff00}).at(end).op_end(t);
  };
  b.on(main);
  part("mm", 10'000, 40'000);
  b.on(worker);
  part("add", 50'000, 90'000);
  b.on(cupti).at(150'000);
  b.gpu(test::call(tid, 20'000, 22'000, 1)).gpu(test::kernel(b, 30'000, 60'000, 1, "k_mm" + suffix));
  b.gpu(test::call(tid + 1, 70'000, 72'000, 2)).gpu(test::kernel(b, 80'000, 120'000, 2, "k_add" + suffix));
  b.clean_exit(200'000);
}

// What Kineto's trace has of both: "NAME DURATION" (in us) of slices, marks, and "memory BYTES", in the order of time
// and name; without rows for what is no more than their names.
std::string kineto_of(const SliceRequest& request) {
  SpoolBuilder ranks[] = {SpoolBuilder(100, {"python3"}), SpoolBuilder(200, {"python3"})};
  for (uint32_t rank = 0; rank < 2; ++rank) work(ranks[rank], rank);
  const SpoolBuilder* both[] = {&ranks[0], &ranks[1]};
  const test::LoadedTrace loaded(both);
  Trace trace = *loaded;
  select(request, trace);
  std::vector<std::pair<double, std::string>> events;
  const auto document = nlohmann::json::parse(test::written(trace, write_kineto));
  for (const auto& e : document.at("traceEvents")) {
    const std::string phase = e.at("ph");
    std::string text = e.at("name");
    if (text.starts_with("PyTorch Profiler") || text.starts_with("Iteration") || text.starts_with("Record")) continue;
    if (phase == "i" && text == "[memory]")
      text = std::string("memory ").append(std::to_string(e.at("args").at("Bytes").get<int>()));
    if (phase == "X") text.append(" ").append(std::to_string(e.at("dur").get<int>()));
    if (phase == "X" || phase == "i") events.emplace_back(e.at("ts").get<double>(), text);
  }
  std::ranges::sort(events);
  std::string all;
  for (const auto& [time, text] : events) all.append(all.empty() ? "" : ", ").append(text);
  return all;
}

const std::string kMain = "python3_100;100_(main);test.py(1):_f", kWorker = "python3_100;101_(worker);aten::add";

}  // namespace

TEST_CASE("what is open at an edge is cut there, what lies beyond is left out") {
  CHECK(stacks_of({}) == kMain + " 4\n" + kMain + ";test.py(1):_g 2\n" + kMain + ";aten::mm 3\n" + kWorker + " 5\n");
  CHECK(stacks_of({.time = {{3'000, 7'000}}}) ==
        kMain + " 2\n" + kMain + ";test.py(1):_g 1\n" + kMain + ";aten::mm 1\n" + kWorker + " 4\n");
  CHECK(stacks_of({.time = {{4'000, 6'000}}}) == kMain + " 2\n" + kWorker + " 2\n");
}

TEST_CASE("what is too short is its caller's own time") {
  CHECK(stacks_of({.min_ns = 3'000}) == kMain + " 6\n" + kMain + ";aten::mm 3\n" + kWorker + " 5\n");
}

TEST_CASE("threads by name and by id") {
  CHECK(stacks_of({.threads = {"worker"}}) == kWorker + " 5\n");
  CHECK(stacks_of({.threads = {"101"}}) == kWorker + " 5\n");
  CHECK_THROWS_AS(stacks_of({.threads = {"nobody"}}), Error);
  CHECK_THROWS_AS(stacks_of({.processes = {"99"}}), Error);
  CHECK_THROWS_AS(stacks_of({.steps = {{1, 2}}}), Error);
  CHECK_THROWS_AS(stacks_of({.time = {{20'000, 30'000}}}), Error);
}

TEST_CASE("work of GPUs, memory and marks are cut, chosen and left out with their calls") {
  const std::string rank0 =
      "aten::mm0 30, mark mm0, memory 10000, cudaLaunchKernel 2, k_mm0 30, aten::add0 40, mark add0, memory 50000, "
      "cudaLaunchKernel 2, k_add0 40";
  CHECK(kineto_of({.processes = {"100"}}) == rank0);
  CHECK(kineto_of({.processes = {"0"}}) == rank0);
  const std::string rank1 = kineto_of({.processes = {"1"}});
  CHECK(rank1.find("k_mm1 30") != rank1.npos);
  CHECK(rank1.find("memory 50001") != rank1.npos);
  CHECK(rank1.find("mm0") == rank1.npos);
  const std::string both = kineto_of({.processes = {"0", "200"}});
  CHECK(both.size() > rank0.size() + rank1.size());
  CHECK(kineto_of({}) == both);
  CHECK(kineto_of({.time = {{21'000, 85'000}}, .processes = {"0"}}) ==
        "aten::mm0 19, cudaLaunchKernel 1, k_mm0 30, aten::add0 35, mark add0, memory 50000, cudaLaunchKernel 2, "
        "k_add0 5");
  // A call over an edge is cut there like a slice, however little of it is shown.
  CHECK(kineto_of({.time = {{12'000, 20'100}}, .processes = {"0"}}) ==
        "aten::mm0 8, mark mm0, memory 10000, cudaLaunchKernel 0");
  CHECK(kineto_of({.time = {{21'900, 25'000}}, .processes = {"0"}}) == "aten::mm0 3, cudaLaunchKernel 0");
  CHECK(kineto_of({.min_ns = 35'000, .processes = {"0"}}) ==
        "mark mm0, memory 10000, aten::add0 40, mark add0, memory 50000, k_add0 40");
  CHECK(kineto_of({.processes = {"0"}, .threads = {"worker"}}) ==
        "aten::add0 40, mark add0, memory 50000, cudaLaunchKernel 2, k_add0 40");
  CHECK(kineto_of({.threads = {"100"}}) == "aten::mm0 30, mark mm0, memory 10000, cudaLaunchKernel 2, k_mm0 30");
}

TEST_CASE("values") {
  CHECK(parse_steps("10..14") == std::pair<uint64_t, uint64_t>(10, 14));
  CHECK(parse_steps("7") == std::pair<uint64_t, uint64_t>(7, 7));
  CHECK(parse_time("1.5s..2s") == std::pair<int64_t, int64_t>(1'500'000'000, 2'000'000'000));
  CHECK(parse_time("200ms..").value().first == 200'000'000);
  CHECK(parse_duration("10us") == 10'000);
  for (const char* bad : {"", "..", "5..2", "a..b", "1..2..3", "-1..2", "1.."}) CHECK_FALSE(parse_steps(bad));
  for (const char* bad : {"", "..", "2s..1s", "1..2", "1s", "nans..2s", "-1s..2s", "1e300s.."})
    CHECK_FALSE(parse_time(bad));
  for (const char* bad : {"", "us", "1", "-1us", "1 us", "infs", "nanus"}) CHECK_FALSE(parse_duration(bad));
}

TEST_CASE("the steps that a message names are those that the run has made, without what follows the last") {
  SpoolBuilder b;
  const FunctionId step = b.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const FunctionId after = b.function("train.py", 30, "save");
  const ObjectId sgd = b.object("SGD", ObjectKind::kOptimizer);
  b.on(b.thread(100));
  for (uint64_t i = 0; i < 3; ++i) b.at(i * 1'000 + 500).begin(step, sgd).at(i * 1'000 + 900).end(step);
  b.at(5'000).begin(after).at(9'000).end(after);
  b.clean_exit(10'000);
  const auto message = [&b](uint64_t from, uint64_t to) -> std::string {
    Trace trace = *test::LoadedTrace(b);
    try {
      select({.steps = std::pair(from, to)}, trace);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(90, 99) == "--steps: none of these; the run has steps 0..2");
  CHECK(message(2, 2).empty());
}

TEST_CASE("of steps that no window has the message says which ones there are, and the nearest") {
  SpoolBuilder b;
  const TrackId main = b.thread(100);
  uint32_t number = 0;
  for (const uint64_t first : {0, 50, 90}) {
    const uint64_t begin = first * 1'000'000 + 1;
    b.window(++number, first, begin, begin + 3'000'000);
    b.in_window(static_cast<uint16_t>(number)).on(main);
    for (uint64_t step = first; step < first + 3; ++step) {
      b.at(begin + (step - first) * 1'000'000).annotation(1, "ProfilerStep#" + std::to_string(step));
      b.at(begin + (step - first) * 1'000'000 + 900'000).op_end(1);
    }
  }
  const auto message = [&b](uint64_t from, uint64_t to) -> std::string {
    Trace trace = *test::LoadedTrace(b);
    try {
      select({.steps = std::pair(from, to)}, trace);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(60, 70) == "--steps: none of these was captured, but steps 0-2, 50-52, 90-92; the nearest is 52");
  CHECK(message(80, 89).ends_with("the nearest is 90"));
  CHECK(message(200, 300).ends_with("the nearest is 92"));
  CHECK(message(51, 60).empty());
  b.at(95'000'000).step_end(95, 0, 0);
  CHECK(message(60, 70).ends_with("52 (the time of every step: report -t steps)"));
}

TEST_CASE(
    "of steps that are chosen by number those are there and no others, whatever was open and whatever came later") {
  class NumberSink final : public Sink {
   public:
    void slice(const Slice&) override {}
    void step(const StepMark& m) override {
      if (m.ended_by) numbers += std::to_string(m.number) + " ";
    }
    std::string numbers;
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    SpoolBuilder b;
    const TrackId main = b.thread(100);
    const FunctionId train = b.function("train.py", 7, "train");
    const bool has_python = random() % 2 == 0, has_call = has_python && random() % 2 == 0;
    const FunctionKind kind = has_python ? FunctionKind::kOptimizerStep : FunctionKind::kFunction;
    const FunctionId wrapper = b.function("optimizer.py", 1, "wrapper", 0, kind);
    const ObjectId sgd = b.object("SGD", ObjectKind::kOptimizer);
    const uint64_t count = 20 + random() % 30, first = random() % 15, last = first + random() % 4;
    constexpr uint64_t kStep = 1'000'000;
    const auto begin_of = [](uint64_t step) { return 1 + kStep * step; };
    b.window(1, first, begin_of(first), begin_of(last + 1));
    for (uint64_t step = 0; step < count; ++step) {
      const bool is_recorded = first <= step && step <= last;
      uint64_t t = begin_of(step) + 1000;
      if (is_recorded) {
        b.in_window(1).on(main);
        if (has_call) b.at(t).begin(train);
        b.at(t += 1000).op(1000 + step, "aten::linear", {.sequence = 1});
        b.at(t += 50'000).op_end(1000 + step);
        if (has_python) b.at(t += 100).begin(wrapper, sgd);
        b.at(t += 50).annotation(step + 1, "Optimizer.step#SGD.step");
        b.at(t += 300'000).op_end(step + 1);
      } else {
        t += 351'050;
      }
      b.at(t += random() % 2 * 3).step_end(step + 1, is_recorded ? 1 : 0, is_recorded ? 2 : 0);
      if (is_recorded && has_python) b.in_window(1).on(main).at(t += random() % 100).end(wrapper);
      if (is_recorded && has_call) b.at(t += random() % 2 * 40'000).end(train);
    }
    b.clean_exit(begin_of(count) + 5000);
    const uint64_t from = first + random() % (last - first + 1), to = from + random() % (last - from + 1);
    CAPTURE(seed);
    Trace trace = *test::LoadedTrace(b);
    select({.steps = std::pair(from, to)}, trace);
    NumberSink sink;
    Replay(trace.processes.at(0)).run(sink);
    std::string wanted;
    for (uint64_t step = from; step <= to; ++step) wanted += std::to_string(step) + " ";
    CHECK(sink.numbers == wanted);
  }
}

}  // namespace slice_test
