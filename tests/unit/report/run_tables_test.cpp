// Where the time of steps went, collectives, threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "formats/analysis/statistics.h"
#include "formats/diff/diff.h"
#include "formats/io/error.h"
#include "formats/io/intervals.h"
#include "formats/report/run_estimate.h"
#include "formats/report/step_remarks.h"
#include "formats/report/summary.h"
#include "formats/report/tables.h"
#include "tests/unit/support/collective_encoding.h"
#include "tests/unit/support/gpu_program.h"

namespace run_tables_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

Statistics statistics(const SpoolBuilder& b) {
  const LoadedTrace trace(b);
  return statistics_of(trace->processes[0], {.has_step_parts = true, .has_comms = true, .has_threads = true});
}

std::string report(std::span<const SpoolBuilder* const> spools, const std::string& table) {
  const LoadedTrace trace(spools);
  return summary_text(*trace, {.tables = {table}, .has_totals = true});
}

// Steps of 1 ms: loading, an operator, a gap, a collective that an operator overlaps.
void step(SpoolBuilder& b, TrackId main, TrackId other, uint64_t n, uint64_t t) {
  b.on(main).at(t).annotation(100 + n, "ProfilerStep#" + std::to_string(n));
  b.annotation(1, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").op(2, "aten::stack");
  b.at(t + 50'000).op_end(2).at(t + 200'000).op_end(1).at(t + 300'000).op(3, "aten::linear").op(4, "aten::addmm");
  b.at(t + 500'000).op_end(4).op_end(3);
  b.on(other).at(t + 450'000).annotation(5, "gloo:all_reduce").at(t + 700'000).op_end(5);
  b.on(main).at(t + 1'000'000).op_end(100 + n);
}

}  // namespace

TEST_CASE("lengths of unions are those of counted nanoseconds") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Intervals intervals;
    std::vector<bool> covered(200);
    for (int i = 0; i < 20; ++i) {
      const auto begin = static_cast<int64_t>(random() % 180), end = begin + static_cast<int64_t>(random() % 20);
      intervals.add(begin, end);
      for (int64_t t = begin; t < end; ++t) covered[static_cast<size_t>(t)] = true;
    }
    intervals.settle();
    for (int64_t from = 0; from < 200; from += 13)
      for (int64_t to = from; to < 200; to += 17)
        CHECK(intervals.length(from, to) == std::count(covered.begin() + from, covered.begin() + to, true));
  }
}

TEST_CASE("the parts of a step add up to it, and what overlaps counts once") {
  SpoolBuilder b;
  const TrackId main = b.thread(100), other = b.thread(101);
  for (uint64_t n = 0; n < 3; ++n) step(b, main, other, n, n * 2'000'000);
  b.clean_exit(9'000'000);
  const Statistics s = statistics(b);
  REQUIRE(s.step_parts.size() == 2);  // the last mark is what came after the last step
  const StepParts& parts = s.step_parts[1];
  CHECK(parts.step.number == 1);
  CHECK(parts.ns[StepPart::kCompute] == 200'000);
  CHECK(parts.ns[StepPart::kCommunication] == 200'000);
  CHECK(parts.ns[StepPart::kLoading] == 200'000);
  CHECK(parts.ns[StepPart::kHost] == 400'000);
  CHECK(parts.ns[StepPart::kIdle] == 0);
}

TEST_CASE("parts of random steps are those of each moment, by the order in which parts count") {
  using Kind = StepPartsCollector::Kind;
  constexpr std::pair<Kind, const char*> kPieces[] = {
      {Kind::kOperator, "aten::mm"},
      {Kind::kAnnotation, "gloo:all_reduce"},
      {Kind::kAnnotation, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"},
      {Kind::kAnnotation, "Optimizer.step#SGD.step"},
      {Kind::kPython, "torch/_dynamo/convert_frame.py(1): _compile"},
      {Kind::kCollector, "Python GC"},
      {Kind::kPython, "<built-in function sleep>"},
      {Kind::kPython, "train.py(1): f"},
  };
  constexpr StepPart kOf[] = {StepPart::kCompute,   StepPart::kCommunication, StepPart::kLoading, StepPart::kOptimizer,
                              StepPart::kCompiling, StepPart::kCollecting,    StepPart::kWaiting, StepPart::kHost};
  constexpr StepPart kHostOrder[] = {StepPart::kLoading,   StepPart::kCompiling, StepPart::kCollecting,
                                     StepPart::kOptimizer, StepPart::kCompute,   StepPart::kCommunication,
                                     StepPart::kWaiting,   StepPart::kHost};
  constexpr StepPart kGpuOrder[] = {
      StepPart::kCompute,    StepPart::kCommunication, StepPart::kCopies,  StepPart::kLoading,   StepPart::kCompiling,
      StepPart::kCollecting, StepPart::kOptimizer,     StepPart::kWaiting, StepPart::kOperators, StepPart::kHost};
  std::mt19937 random(35);
  for (int round = 0; round < 60; ++round) {
    constexpr int64_t kEnd = 300;
    const bool has_gpu = round % 2 != 0;
    StepPartsCollector collector;
    std::map<StepPart, std::vector<bool>> at;
    const auto mark = [&](StepPart part, int64_t begin, int64_t end) {
      at[part].resize(kEnd);
      for (int64_t t = begin; t < end; ++t) at[part][static_cast<size_t>(t)] = true;
    };
    // The main thread has something open for nearly all of the time; helpers that only wait count for nothing.
    collector.add({Kind::kPython, 0, 7, 10, kEnd, true, false}, kPieces[7].second);
    mark(StepPart::kHost, 10, kEnd);
    collector.add({Kind::kPython, 1, 6, 0, kEnd, true, false}, kPieces[6].second);
    for (int i = 0; i < 12; ++i) {
      const size_t which = i == 0 ? 0 : random() % std::size(kPieces);
      const auto begin = static_cast<int64_t>(random() % 280), end = begin + static_cast<int64_t>(random() % 20);
      collector.add({kPieces[which].first, 0, static_cast<uint32_t>(which), begin, end, false, false},
                    kPieces[which].second);
      mark(has_gpu && kOf[which] == StepPart::kCompute ? StepPart::kOperators : kOf[which], begin,
           kOf[which] == StepPart::kHost ? begin : end);
    }
    if (has_gpu)
      for (int i = 0; i < 8; ++i) {
        const auto begin = static_cast<int64_t>(random() % 280), end = begin + 1 + static_cast<int64_t>(random() % 19);
        const bool is_kernel = i == 0 || random() % 2 != 0, is_nccl = is_kernel && i % 4 == 3;
        collector.work(begin, end, is_kernel, is_nccl ? "ncclDevKernel_AllReduce" : "gemm");
        mark(is_nccl ? StepPart::kCommunication : is_kernel ? StepPart::kCompute : StepPart::kCopies, begin, end);
      }
    const std::vector<StepSpan> steps{{0, 100, 0}, {100, 230, 1}, {230, kEnd, 2}};
    for (const StepParts& s : collector.finish(steps)) {
      PartTimes expected;
      for (int64_t t = s.step.begin; t < s.step.end; ++t) {
        StepPart part = StepPart::kIdle;
        const std::span<const StepPart> order =
            has_gpu ? std::span<const StepPart>(kGpuOrder) : std::span<const StepPart>(kHostOrder);
        for (auto each = order.rbegin(); each != order.rend(); ++each)
          if (const auto known = at.find(*each); known != at.end() && known->second[static_cast<size_t>(t)])
            part = *each;
        ++expected[part];
      }
      CHECK(s.ns.all() == expected.all());
      CHECK(s.ns.sum() == s.step.end - s.step.begin);
    }
  }
}

TEST_CASE("advice, the table of steps and a comparison tell the same account of a typical step") {
  SpoolBuilder b;
  const TrackId main = b.thread(100), other = b.thread(101);
  for (uint64_t n = 0; n < 9; ++n) step(b, main, other, n, n * 2'000'000);
  b.clean_exit(19'000'000);
  const LoadedTrace trace(b);
  const Report report = report_of(*trace, {.has_step_parts = true}, {.has_advice = true});
  CHECK(report.advice.parts.sum() > 0);
  CHECK(report.advice.parts.all() == report.parts[0].typical.all());
  CHECK(report.advice.parts.all() == measure(*trace, "run", 1).typical.all());
  const std::string text = "a typical step: " + parts_text(report.advice.parts);
  CHECK(std::ranges::count(step_times_table(report.parts, 15).remarks, text) == 1);
}

TEST_CASE("with a GPU compute is what it does, and the operators that launch it are the host's") {
  Program p;
  SpoolBuilder& b = p.b;
  for (uint64_t n = 0; n < 2; ++n)
    b.at(n * 100'000).annotation(n + 1, "ProfilerStep#" + std::to_string(n)).at(n * 100'000 + 90'000).op_end(n + 1);
  p.deliver();
  b.gpu(call(100, 3'000, 4'000, 1)).gpu(kernel(b, 10'000, 40'000, 1, "gemm"));
  b.gpu(call(100, 5'000, 6'000, 2)).gpu(kernel(b, 30'000, 60'000, 2, "ncclDevKernel_AllReduce"));
  b.clean_exit(1'000'000);
  const Statistics s = statistics(b);
  REQUIRE(s.step_parts.size() == 1);
  CHECK(s.step_parts[0].ns[StepPart::kCompute] == 30'000);
  CHECK(s.step_parts[0].ns[StepPart::kCommunication] == 20'000);
  CHECK(s.step_parts[0].ns[StepPart::kHost] == 40'000);
}

TEST_CASE("a step that took far longer than the others is an outlier, one that took a little longer is none") {
  const auto outliers = [](uint64_t longest) {
    SpoolBuilder b;
    b.on(b.thread(100));
    for (uint64_t n = 0, t = 0; n < 11; ++n) {
      b.at(t).annotation(n + 1, "ProfilerStep#" + std::to_string(n));
      t += n == 4 ? longest : 1000 + n;
      b.at(t).op_end(n + 1);
    }
    b.clean_exit(1'000'000);
    std::vector<uint64_t> numbers;
    for (const StepParts& s : statistics(b).step_parts)
      if (s.is_outlier) numbers.push_back(s.step.number);
    return numbers;
  };
  CHECK(outliers(2000) == std::vector<uint64_t>{4});
  CHECK(outliers(1100).empty());
}

TEST_CASE("steps, threads and collectives as tables") {
  SpoolBuilder first(100), second(200);
  for (SpoolBuilder* b : {&first, &second}) {
    const bool is_late = b == &second;
    const TrackId main = b->thread(is_late ? 200 : 100, "main"), other = b->thread(is_late ? 201 : 101, "gloo");
    for (uint64_t n = 0; n < 4; ++n) step(*b, main, other, n, n * 2'000'000 + (is_late ? 100'000 : 0));
    b->clean_exit(9'000'000);
  }
  const SpoolBuilder* both[] = {&first, &second};
  check_golden("run_tables.txt", report(both, "steps") + report(both, "comms") + report(both, "threads"));
}

TEST_CASE("who waits for the slowest, and how long") {
  CommsCalls first, second;
  first[{"all_reduce"}] = {{.begin = 0, .end = 100, .bytes = 40}, {.begin = 1000, .end = 1100, .bytes = 40}};
  second[{"all_reduce"}] = {{.begin = 60, .end = 100, .bytes = 40}, {.begin = 1090, .end = 1100, .bytes = 40}};
  second[{"broadcast"}] = {{.begin = 0, .end = 10, .bytes = 4}};
  auto tallies = compare({&first, &second});
  const CommsTally& t = tallies[{"all_reduce"}];
  CHECK((t.calls == 4 && t.bytes == 160 && t.total_ns == 250));
  CHECK((t.waiting_ns == 150 && t.slowest == 1 && t.slowest_calls == 2 && t.compared == 2));
  CHECK(tallies[{"broadcast"}].compared == 0);
}

TEST_CASE("in windows, collectives are compared by step: one rank may have recorded more of another step") {
  CommsCalls first, second;
  first[{"all_reduce"}] = {{.begin = 0, .end = 100, .bytes = 4, .step = -1},
                           {.begin = 200, .end = 300, .bytes = 4, .step = 3},
                           {.begin = 1000, .end = 1100, .bytes = 4, .step = 9}};
  second[{"all_reduce"}] = {{.begin = 290, .end = 300, .bytes = 4, .step = 3},
                            {.begin = 700, .end = 710, .bytes = 4, .step = 7},
                            {.begin = 1060, .end = 1100, .bytes = 4, .step = 9}};
  auto tallies = compare({&first, &second});
  const CommsTally& t = tallies[{"all_reduce"}];
  CHECK((t.calls == 6 && t.compared == 2 && t.waiting_ns == 150));
  REQUIRE(t.waits.size() == 2);
  CHECK((t.waits[0].process == 0 && t.waits[0].when.length(0, 2000) == 150));
  CHECK((t.waits[1].process == 1 && t.waits[1].when.length(0, 2000) == 0));
}

TEST_CASE("ranks that do the same steps are described once, and for each what it did in them") {
  std::vector<ReportPart> parts(3);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].role = "rank " + std::to_string(i);
    RunSteps& run = parts[i].run.emplace();
    run.captured_text = "0-9, 100-102";
    run.cost = 0.01 + 0.001 * static_cast<double>(i);
    run.unusual.push_back({.first = 90, .last = 99, .count = 10, .is_row = true, .times = 3, .captured = 4});
    run.unusual.back().what = i == 1 ? "job.py(3): load" : "job.py(9): average";
    run.unusual.back().what_ns = 5'000'000;
  }
  parts[2].run->unusual.push_back({.first = 120, .last = 120, .count = 1, .times = 2});
  const std::vector<std::string> expected{
      "all 3 ranks: in full: 0-9, 100-102; the time of every step",
      "all 3 ranks: windows added 1.0 to 1.2 % to the run after its beginning",
      "all 3 ranks: steps 90-99: 3.0 times the median, 0.000 us in all; rank 1: +5.000 ms a step in job.py(3): load; "
      "ranks 0, 2: +5.000 ms a step in job.py(9): average",
      "rank 2: step 120: 2.0 times the median; not captured"};
  CHECK(step_remarks(parts, true) == expected);
  parts.emplace_back().role = "DataLoader worker 0";  // it has no windows
  CHECK(step_remarks(parts, true) == expected);
  parts.emplace_back().role = "rank 3";
  CHECK(step_remarks(parts, true)[0] == "ranks 0-2: in full: 0-9, 100-102; the time of every step");
  parts.resize(3);
  for (ReportPart& part : parts) part.role = "evaluation " + part.role;
  CHECK(step_remarks(parts, true)[0] == "all 3 processes: in full: 0-9, 100-102; the time of every step");
  parts.emplace_back().pid = "17";
  CHECK(step_remarks(parts, true)[0] ==
        "evaluation rank 0, evaluation rank 1, evaluation rank 2: in full: 0-9, 100-102; the time of every step");
  parts.resize(3);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].role = "rank " + std::to_string(i);
  parts[2].run->captured_text = "0-9";
  CHECK(step_remarks(parts, true)[0] == "ranks 0-1: in full: 0-9, 100-102; the time of every step");
  CHECK(step_remarks({parts[0]}, true)[0] == "in full: 0-9, 100-102; the time of every step");
}

// As a DeviceMesh of two by two makes them: each dimension has a description, and two groups of it.
TEST_CASE("groups of one description are compared each for itself") {
  SpoolBuilder ranks[] = {SpoolBuilder(100), SpoolBuilder(101), SpoolBuilder(102), SpoolBuilder(103)};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    SpoolBuilder& b = ranks[rank];
    b.thread(100 + rank);
    const int column = static_cast<int>(rank % 2);
    const uint64_t begin = 1'000'000 + (column == 1 ? 500'000 : 0) + (rank == 2 ? 1000 : 0);
    b.at(begin).op(1, "record_param_comms");
    collective(b, {.group = column == 0 ? "1" : "2", .description = "mesh_dp", .ranks = {column, column + 2}});
    b.at(begin + 1'000'000).op_end(1).clean_exit(3'000'000);
  }
  const SpoolBuilder* all[] = {&ranks[0], &ranks[1], &ranks[2], &ranks[3]};
  const std::string text = report(all, "comms");
  CAPTURE(text);
  CHECK(text.find("1.000 us    100 %      102  allreduce  mesh_dp (0, 2)") != text.npos);
  CHECK(text.find("0.000 us    100 %      101  allreduce  mesh_dp (1, 3)") != text.npos);
}

TEST_CASE("what recording took is told of spools") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).op(1, "aten::add").op_end(1).clean_exit(1000);
  const SpoolBuilder* one[] = {&b};
  CHECK(report(one, "profiler").find("What recording took\n  pid  records  operators") != std::string::npos);
}

TEST_CASE("modules of a run in windows have what all of its steps spent in them") {
  constexpr uint64_t kMs = 1'000'000;
  SpoolBuilder b;
  const TrackId main = b.thread(100);
  const FunctionId call = b.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  uint32_t window = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    const uint64_t begin = step * 10 * kMs, in_window = step % 20;
    if (in_window == 0) b.window(++window, step, begin + 1, begin + 30 * kMs, WindowReason::kTypical);
    if (in_window < 3) {
      const uint64_t ms = 4 + (window + in_window + 1) % 2;  // 4, 5, 4; 5, 4, 5; 4, 5, 4
      b.in_window(static_cast<uint16_t>(window)).on(main).at(begin + kMs).begin(call, linear);
      b.at(begin + kMs + ms * kMs).end(call);
    }
    b.at(begin + 10 * kMs).step_end(step + 1, in_window < 3 ? window : 0, in_window < 3 ? 2 : 0);
  }
  b.meta("window", "auto");
  b.clean_exit(600 * kMs);
  const LoadedTrace trace(b);
  const auto report = nlohmann::json::parse(summary_text(*trace, {.tables = {"modules"}, .style = ReportStyle::kJson}));
  const auto& row = report["tables"][0]["rows"][0];
  CHECK(row["name"] == "nn.Module: Linear_0");
  CHECK(row["run_ns"].get<double>() == doctest::Approx(60 * 4.4 * kMs).epsilon(0.05));
  // Three windows, of which one is 1/3 ms or so above the others: Student's t is 4.30.
  CHECK(row["run_error_percent"].get<double>() > 9);
  CHECK(row["run_error_percent"].get<double>() < 14);
}

// Ranks of which the last one is late at each of 20 collectives of gloo, three of which are queued at once, in a step
// of 1 ms each. Before the first step they wait for a second.
std::string remarks_of_late_rank(const std::vector<std::string>& hosts) {
  std::deque<SpoolBuilder> ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    SpoolBuilder& b = ranks.emplace_back(static_cast<uint32_t>(100 + rank));
    std::snprintf(b.header().host, sizeof(b.header().host), "%s", hosts[rank].c_str());
    b.meta("distributed.rank", std::to_string(rank));
    const TrackId main = b.thread(100, "main"), other = b.thread(101, "gloo");
    const bool is_late = rank + 1 == hosts.size();
    uint64_t key = 1000, now = 1'000'000'000;
    b.on(other).at(is_late ? now - 10'000 : 1'000).op(1, "gloo:barrier", {.is_async = true}).at(now - 5'000).op_end(1);
    for (uint64_t step = 0; step < 21; ++step, now += 1'000'000) {
      b.on(main).at(now).annotation(100 + step, "ProfilerStep#" + std::to_string(step));
      b.on(other).at(now + (is_late ? 700'000 : 100'000));
      for (uint64_t k = 0; k < 3; ++k) b.op(key + k, "gloo:all_reduce", {.is_async = true});
      b.at(now + 800'000);
      for (uint64_t k = 0; k < 3; ++k) b.op_end(key + k);
      key += 3;
      b.on(main).at(now + 1'000'000).op_end(100 + step);
    }
    b.clean_exit(now + 1'000'000);
  }
  std::vector<const SpoolBuilder*> all;
  for (const SpoolBuilder& b : ranks) all.push_back(&b);
  const LoadedTrace trace{std::span<const SpoolBuilder* const>(all)};
  return summary_text(*trace, {.tables = {"steps"}});
}

TEST_CASE("waiting for a rank is the time in which a process waited, however many collectives it had begun") {
  const std::string text = remarks_of_late_rank({"one", "one", "one"});
  CAPTURE(text);
  CHECK(
      text.find("gloo:all_reduce: the others wait for rank 2, 60.0 % of their steps' time or more; rank 2 itself waits "
                "0.0 %") != text.npos);
  CHECK(text.find("gloo:barrier: the others wait") == text.npos);
}

TEST_CASE("who waits for whom is not said across hosts, whose clocks differ") {
  const std::string text = remarks_of_late_rank({"one", "one", "two"});
  CAPTURE(text);
  CHECK(text.find("the others wait") == text.npos);
}

TEST_CASE("what all ranks spent is as uncertain as each of them is: they wait for each other") {
  constexpr uint64_t kMs = 1'000'000;
  const auto error_of = [](size_t ranks) {
    std::deque<SpoolBuilder> spools;
    for (size_t rank = 0; rank < ranks; ++rank) {
      SpoolBuilder& b = spools.emplace_back(static_cast<uint32_t>(100 + rank));
      const TrackId main = b.thread(100);
      uint32_t window = 0;
      for (uint64_t step = 0; step < 200; ++step) {
        const uint64_t begin = step * 10 * kMs, in_window = step % 20;
        if (in_window == 0) b.window(++window, step, begin + 1, begin + 30 * kMs, WindowReason::kTypical);
        // All steps of a window are alike.
        if (in_window < 3) b.in_window(static_cast<uint16_t>(window)).on(main).at(begin + kMs).op(step + 1, "aten::mm");
        if (in_window < 3) b.at(begin + (3 + window % 2) * kMs).op_end(step + 1);
        b.at(begin + 10 * kMs).step_end(step + 1, in_window < 3 ? window : 0, in_window < 3 ? 2 : 0);
      }
      b.meta("window", "auto");
      b.clean_exit(2000 * kMs);
    }
    std::vector<const SpoolBuilder*> all;
    for (const SpoolBuilder& b : spools) all.push_back(&b);
    const LoadedTrace trace{std::span<const SpoolBuilder* const>(all)};
    const auto report = nlohmann::json::parse(summary_text(*trace, {.tables = {"ops"}, .style = ReportStyle::kJson}));
    return report["tables"][0]["rows"][0]["run_error_percent"].get<double>();
  };
  // Ten windows with 2 or 3 ms: their means have a standard deviation of 0.527 ms, and Student's t is 2.262.
  CHECK(error_of(1) == doctest::Approx(100 * 2.262 * 0.527 / std::sqrt(10.0) / 2.5).epsilon(0.03));
  CHECK(error_of(4) == doctest::Approx(error_of(1)));
}

TEST_CASE("of a run of millions of steps in many processes only the rows that are shown are made") {
  std::vector<StepTime> steps(1'000'000);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = i;
    steps[i].ns = static_cast<int64_t>(1000 + i);
  }
  std::vector<ReportPart> parts(64);
  for (ReportPart& part : parts) {
    part.run.emplace();
    part.all_steps = steps;
  }
  const ReportTable shown = step_times_table(parts, 15);
  CHECK(shown.rows.size() == 15);
  CHECK(std::get<int64_t>(shown.rows[14][1]) == 14 * 160 + 159);  // the longest of each 160
  CHECK(shown.left_out == 64 * 6250 - 15);
}

TEST_CASE("the steps of a report are the trace's own, and where they are sorted those that are left out are counted") {
  SpoolBuilder b;
  b.thread(100);
  b.meta("window", "auto");
  b.window(1, 0, 0, 1000);
  for (uint64_t step = 0; step < 6000; ++step) b.at(1000 * (step + 1) + step % 7).step_end(step + 1, 0, 0);
  b.clean_exit(7'000'000);
  const LoadedTrace trace(b);
  const Report report = report_of(*trace);
  CHECK(report.parts.at(0).all_steps.data() == trace->processes[0].steps.data());
  for (const char* sort : {"", "pid"}) {
    const std::string text = summary_text(*trace, {.tables = {"steps"}, .sort = sort, .has_totals = true});
    CAPTURE(text);
    CHECK(text.find("5,985 more steps") != text.npos);
  }
}

TEST_CASE("the error of an estimate is that of the means of windows, and of a single one there is none") {
  const Estimate one = estimate_of({1, 2, 3}, {0, 0, 0});
  CHECK(one.mean == 2);
  CHECK_FALSE(one.error);
  // Means of 1, 2 and 3: 4.303 times 1 / sqrt(3).
  CHECK(*estimate_of({0, 2, 1, 3, 2, 4}, {0, 0, 1, 1, 2, 2}).error == doctest::Approx(2.484).epsilon(0.001));
}

}  // namespace run_tables_test
