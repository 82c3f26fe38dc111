#include "formats/report/summary.h"

#include <doctest/doctest.h>

#include <fstream>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/text.h"
#include "tests/unit/support/spool_builder.h"

namespace table_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// `steps` steps of a millisecond and a bit: a model of two modules, its backward and an optimizer.
void train_for(SpoolBuilder& b, uint64_t steps) {
  b.thread(100, "python3", 1);
  const FunctionId call = b.function("torch/nn/modules/module.py", 1190, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId step = b.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const FunctionId main = b.function("/home/me/train.py", 10, "main", 9);
  const ObjectId net = b.object("Net"), linear = b.object("Linear"), sgd = b.object("SGD", ObjectKind::kOptimizer);
  b.at(0).begin(main);
  for (uint64_t i = 0; i < steps; ++i) {
    const uint64_t t = 1'000'000 * (i + 1) + i * i * 1000;
    b.at(t)
        .begin(call, net)
        .at(t + 10'000)
        .begin(call, linear)
        .op(1, "aten::linear")
        .at(t + 12'000)
        .op(2, "aten::addmm");
    b.at(t + 200'000).op_end(2).at(t + 205'000).op_end(1).at(t + 210'000).end(call).at(t + 220'000).end(call);
    b.at(t + 300'000)
        .begin(step, sgd)
        .at(t + 301'000)
        .annotation(3, "Optimizer.step#SGD.step")
        .at(t + 340'000)
        .op_end(3)
        .end(step);
  }
}

size_t widest(const std::string& text) {
  size_t width = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    width = std::max(width, columns(std::string_view(text).substr(at, end - at)));
  }
  return width;
}

}  // namespace

TEST_CASE("who only waits is left out for people, with a remark, and marked for programs; no share counts it") {
  SpoolBuilder b;
  const FunctionId main = b.function("train.py", 10, "main"), work = b.function("train.py", 20, "work"),
                   wait = b.function("/usr/lib/python3.11/threading.py", 288, "wait");
  b.on(b.thread(100)).at(0).begin(main).at(1'000'000).begin(work).at(4'000'000).end(work);
  b.begin(wait).at(10'000'000).end(wait).end(main);
  const test::LoadedTrace trace(b);
  TableOptions options{.tables = {"python"}};
  const std::string without = summary_text(*trace, options);
  CHECK(without.find("3.000 ms  75.0 %   3.000 ms      1   3.000 ms  train.py(20): work\n") != without.npos);
  CHECK(without.find("threading.py") == without.npos);
  CHECK(without.find("  6.000 ms of waiting in 1 function, no part of self %: left out, --waits shows it\n") !=
        without.npos);
  options.has_waits = true;
  const std::string with = summary_text(*trace, options);
  CHECK(
      with.find("6.000 ms       -   6.000 ms      1   6.000 ms    yes  /usr/lib/python3.11/threading.py(288): wait") !=
      with.npos);
  CHECK(with.find("left out") == with.npos);
  options.style = ReportStyle::kJson;
  const std::string json = summary_text(*trace, options);
  CHECK(json.find(R"("totals":{"self_ns":10000000,"waiting_ns":6000000})") != json.npos);
  CHECK(json.find(R"("self_percent":null,"total_ns":6000000,"calls":1,"avg_ns":6000000,"waits":"yes")") != json.npos);
}

TEST_CASE("grouped by line where no line is known, it says how to get them") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).op(1, "aten::mm").at(1'000).op_end(1);
  const test::LoadedTrace trace(b);
  TableOptions options{.tables = {"ops"}};
  const std::string_view how = "lines come from the raw records of runs with --python functions (the default)";
  CHECK(summary_text(*trace, options).find(how) == std::string::npos);
  options.grouping.by = OpGrouping::By::kLine;
  CHECK(summary_text(*trace, options).find(how) != std::string::npos);
}

TEST_CASE("a duration that nobody waits for is written as it is") {
  CHECK(duration_text(1.5e9) == "1.500 s");
  const std::string text = duration_text(1e300);
  CHECK(text.size() == 292 + 6);
  CHECK(text.find_first_not_of("0123456789.s ") == text.npos);
}

TEST_CASE("the summary of one process") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  train_for(b, 5);
  b.source("operators", SourceState::kOn, "torch 1.13");
  b.clean_exit(8'000'000);
  const test::LoadedTrace trace(b);
  const std::string text = summary_text(*trace);
  CHECK(widest(text) <= 120);
  test::check_golden("summary.txt", text);
}

TEST_CASE("the summary of several processes, with what is missing") {
  SpoolBuilder first(100, {"/usr/bin/python3", "train.py"}),
      second(200, {"/usr/bin/python3", "-c", "from multiprocessing..."});
  train_for(first, 4);
  train_for(second, 2);
  first.clean_exit(6'000'000);
  second.source("python", SourceState::kOff, "--python off");
  second.source("operators", SourceState::kFailed, "the probe of torch 9.9 does not agree: " + std::string(200, 'x'));
  second.header().lost[static_cast<size_t>(LossCause::kSizeLimit)] = 12345;
  second.header().start.realtime.value += 5000;
  const SpoolBuilder* both[] = {&first, &second};
  test::TemporaryDirectory directory;
  first.write(directory / "a.spool");
  second.write(directory / "b.spool");
  std::ofstream(directory / "box.300.1.spool") << "torn";
  const std::string text = summary_text(load(find_spools(directory.path())));
  CHECK(widest(text) <= 120);
  test::check_golden("summary_several.txt", text);
  (void)both;
}

TEST_CASE("recursion does not count total time twice") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(0).begin(f).at(1000).begin(f).at(2000).begin(f).at(3000).end(f).at(4000).end(f).at(10000).end(f);
  const test::LoadedTrace trace(b);
  const std::string text = summary_text(*trace, {{"python"}});
  CHECK(text.find("  10.000 us  100.0 %  10.000 us      3  3.333 us  test.py(1): f\n") != text.npos);
}

TEST_CASE("two optimizers in one iteration are one step") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId step = b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep);
  const ObjectId one = b.object("Adam", ObjectKind::kOptimizer), two = b.object("Adam", ObjectKind::kOptimizer);
  for (uint64_t t = 1; t <= 3; ++t)
    b.at(t * 1000).begin(step, one).end(step).at(t * 1000 + 10).begin(step, two).end(step);
  const test::LoadedTrace trace(b);
  const std::string text = summary_text(*trace, {{"steps"}});
  CHECK(text.find("  100      3  1.000 us  1.000 us  0.010 us  1.000 us  Optimizer: Adam_0\n") != text.npos);
}

TEST_CASE("a table that there is none of names those that there are") {
  SpoolBuilder b;
  const test::LoadedTrace trace(b);
  CHECK_THROWS_WITH_AS(
      summary_text(*trace, {{"ops", "colours"}}),
      "--tables: 'colours' is not a table: ops, kernels, calls, modules, memory, python, steps, comms, "
      "threads, gpu, launches, critical, processes, profiler, advice",
      Error);
}

TEST_CASE("a run of seconds says seconds") {
  SpoolBuilder b;
  b.clean_exit(2'500'000'000);
  const test::LoadedTrace trace(b);
  CHECK(summary_text(*trace) == "1 process, 2.500 s: 0 operators, 0 Python calls\n");
}

TEST_CASE("a summary of nothing is a line") {
  CHECK(summary_text(Trace{}) == "0 processes, 0.000 us: 0 operators, 0 Python calls\n");
}

}  // namespace table_test
