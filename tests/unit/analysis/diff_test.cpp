#include "formats/diff/diff.h"

#include <doctest/doctest.h>

#include "formats/diff/budget.h"
#include "formats/io/error.h"
#include "formats/write/kineto/kineto.h"
#include "tests/unit/support/spool_builder.h"

namespace diff_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

struct Program {
  uint64_t steps = 12;
  uint64_t mm_ns = 50'000;
  uint64_t mm_calls = 2;
  std::string other = "aten::relu";
  uint64_t noise_ns = 1'000;  // a different part of it each step
  int64_t mm_bytes = 0;
  uint64_t wait_ns = 0;
};

// Steps of a module with two operators, an optimizer at the end of each.
void train(SpoolBuilder& b, const Program& program) {
  b.thread(100, "python3", 1);
  const FunctionId call = b.function("torch/nn/modules/module.py", 1190, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId step = b.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const FunctionId main = b.function("/home/me/train.py", 10 + static_cast<uint32_t>(program.mm_calls), "main", 9);
  const FunctionId wait = b.function("threading.py", 288, "wait");
  const ObjectId net = b.object("Net"), linear = b.object("Linear"), sgd = b.object("SGD", ObjectKind::kOptimizer);
  b.detail(net, net, "");
  b.detail(linear, net, "decoder.out");
  uint64_t t = 0, key = 0;
  b.at(0).begin(main);
  const auto after = [&](uint64_t ns) -> SpoolBuilder& { return b.at(t += ns); };
  for (uint64_t i = 0; i < program.steps; ++i) {
    after(10'000).begin(call, net);
    after(5'000).begin(call, linear);
    for (uint64_t k = 0; k < program.mm_calls; ++k) {
      after(1'000).op(++key, "aten::mm");
      for (const int64_t bytes : {program.mm_bytes, -program.mm_bytes})
        if (bytes != 0)
          b.raw(static_cast<uint8_t>(Kind::Memory),
                {4096, static_cast<uint64_t>(bytes), static_cast<uint64_t>(std::max<int64_t>(0, bytes)), 0, 0xff00});
      after(program.mm_ns + (i * 7919 + k) % 10 * program.noise_ns).op_end(key);
    }
    after(1'000).op(++key, program.other);
    after(30'000).op_end(key);
    after(1'000).end(call);
    after(1'000).end(call);
    if (program.wait_ns != 0) after(1'000).begin(wait);
    if (program.wait_ns != 0) after(program.wait_ns).end(wait);
    after(2'000).begin(step, sgd);
    after(20'000).end(step);
  }
  after(1'000).end(main);
  b.clean_exit(t + 1'000);
}

Measured measured(const std::string& name, const Program& program, size_t warmup = 1) {
  SpoolBuilder b;
  train(b, program);
  const test::LoadedTrace trace(b);
  return measure(*trace, name, warmup);
}

const DiffRow& row(const Diff& diff, Metric metric, const std::string& name) {
  for (const DiffTable& table : diff.tables)
    if (table.metric == metric)
      for (const DiffRow& each : table.rows)
        if (each.name == name) return each;
  throw std::runtime_error("no row " + name);
}

}  // namespace

TEST_CASE("an operator that got slower, one that is new and one that is gone") {
  const Measured base = measured("base", {}),
                 now = measured("new", {.mm_ns = 90'000, .mm_calls = 3, .other = "aten::gelu|<b>`x`"});
  const Diff diff = compare(base, now, {.fail_over = 20, .metrics = {Metric::kStep, Metric::kOps, Metric::kCalls}});
  CHECK(diff.failed() == 4);  // a call more of each three
  const DiffRow& mm = row(diff, Metric::kOps, "aten::mm");
  CHECK(mm.calls.base == 2);
  CHECK(mm.calls.now == 3);
  CHECK(mm.time.p < 0.001);
  CHECK(row(diff, Metric::kOps, "aten::relu").fate == Fate::kVanished);
  CHECK(row(diff, Metric::kOps, "aten::gelu|<b>`x`").fate == Fate::kNew);
  test::check_golden("diff.txt", diff_text(diff, 5));
  test::check_golden("diff.md", diff_markdown(diff, 5));
  test::check_golden("diff.xml", diff_junit(diff));
}

TEST_CASE("a longer wait is left out, said and not judged, unless asked for; a budget may name it") {
  const Measured base = measured("base", {.wait_ns = 50'000}), now = measured("new", {.wait_ns = 5'000'000});
  Budget budget;
  budget.names[Metric::kPython]["threading.py: wait"].time = 1e6;
  DiffOptions options{.fail_over = 20, .metrics = {Metric::kPython}, .budget = &budget};
  const auto shown = [&options, &base, &now] {
    const Diff diff = compare(base, now, options);
    return std::pair(diff_text(diff, 15), diff.failed());
  };
  const auto [without, only_the_budget] = shown();
  CHECK(without.find("  threading.py: wait\n") == without.npos);
  CHECK(without.find("1 Python function that only waits left out (50.000 us -> 5.000 ms per step): --waits shows and "
                     "judges them") != without.npos);
  CHECK(without.find("  Optimizer: SGD_0\n") != without.npos);
  CHECK(only_the_budget == 1);
  options.has_waits = true;
  const auto [with, both] = shown();
  CHECK(with.find("threading.py: wait\n") != with.npos);
  CHECK(with.find("left out") == with.npos);
  CHECK(both == 2);
}

TEST_CASE("a new name is judged by what it adds to the step") {
  const Measured base = measured("base", {}), now = measured("new", {.other = "aten::gelu"});
  const auto check_of = [&](double limit, Metric metric, const std::string& name) {
    const Diff diff = compare(base, now, {.fail_over = limit, .metrics = {metric}});
    const auto check = std::ranges::find(diff.checks, name, &Check::name);
    REQUIRE(check != diff.checks.end());
    return *check;
  };
  const double step = row(compare(base, now, {}), Metric::kStep, "step").time.base;
  const double share = 100 * 30'000 / step;
  CHECK(check_of(share + 0.1, Metric::kOps, "aten::gelu").is_passed);
  const Check past = check_of(share - 0.1, Metric::kOps, "aten::gelu");
  CHECK(!past.is_passed);
  CHECK(past.text.starts_with("self time per step 0.000 us -> 30.000 us, new, +"));
  CHECK(past.text.find(" % of the step, p <0.001, limit ") != std::string::npos);
}

TEST_CASE("noise is no regression, whatever the limit") {
  const Measured base = measured("base", {}), now = measured("new", {.mm_ns = 50'100, .noise_ns = 990});
  const Diff diff = compare(base, now, {.fail_over = 0, .metrics = {Metric::kStep, Metric::kOps, Metric::kModules}});
  CHECK(row(diff, Metric::kOps, "aten::mm").time.p > kSignificance);
  CHECK(diff.checks.size() == 5);
  CHECK(diff.failed() == 0);
}

TEST_CASE("a real difference below the limit passes, the same above it does not") {
  const Measured base = measured("base", {}), now = measured("new", {.mm_ns = 60'000});
  const double change = row(compare(base, now, {}), Metric::kOps, "aten::mm").time.change() * 100;
  CHECK(compare(base, now, {.fail_over = change + 0.1, .metrics = {Metric::kOps}}).failed() == 0);
  CHECK(compare(base, now, {.fail_over = change - 0.1, .metrics = {Metric::kOps}}).failed() == 1);
  CHECK(compare(now, base, {.fail_over = 0, .metrics = {Metric::kOps}}).failed() == 0);  // faster
}

TEST_CASE("what is allocated is its operator's and its module's") {
  const Measured base = measured("base", {.mm_bytes = 1000}), now = measured("new", {.mm_bytes = 4000});
  Budget budget;
  budget.names[Metric::kModules]["Linear decoder.out"].bytes = 7999;
  const Diff diff = compare(base, now, {.budget = &budget});
  for (const auto& [metric, name] :
       {std::pair(Metric::kOps, "aten::mm"), std::pair(Metric::kModules, "Linear decoder.out")}) {
    CHECK(row(diff, metric, name).bytes.base == 2000);
    CHECK(row(diff, metric, name).bytes.now == 8000);
  }
  CHECK(row(diff, Metric::kModules, "Net_0").bytes.now == 0);
  CHECK(diff.failed() == 1);
}

TEST_CASE("a name of little time is judged by no metric, for its calls neither") {
  const auto judged = [](double share) {
    const Measured base = measured("base", {.mm_ns = 1'000'000}), now = measured("new", {.mm_ns = 1'000'000});
    size_t relu = 0;
    for (const Check& check : compare(base, now, {.fail_over = 0, .metrics = {Metric::kCalls}, .share = share}).checks)
      relu += check.name == "aten::relu";
    return relu;
  };
  CHECK(judged(2) == 0);  // 30 us of 2 ms
  CHECK(judged(1) == 1);
}

TEST_CASE("modules go by path, functions by file and name") {
  const Diff diff = compare(measured("base", {}), measured("new", {.mm_calls = 5}), {});
  CHECK(row(diff, Metric::kModules, "Linear decoder.out").fate == Fate::kBoth);
  CHECK(row(diff, Metric::kModules, "Net_0").fate == Fate::kBoth);
}

TEST_CASE("with few steps nothing is tested, and it says so") {
  const Program few{.steps = kMinSteps};  // one warms up
  const Diff diff = compare(measured("base", few), measured("new", few), {});
  CHECK(diff.notes ==
        std::vector<std::string>{"with fewer than 8 steps in each run nothing can be tested: noise counts"});
  CHECK_FALSE(row(diff, Metric::kOps, "aten::mm").time.p);
  CHECK(row(compare(measured("base", few, 0), measured("new", few, 0), {}), Metric::kOps, "aten::mm").time.p == 1);
}

TEST_CASE("without steps the totals are compared; a step cannot be judged then") {
  const Measured base = measured("base", {.steps = 1}), now = measured("new", {.steps = 1, .mm_ns = 200'000});
  const Diff diff = compare(base, now, {.fail_over = 10});
  CHECK_FALSE(diff.by_step);
  CHECK(diff.checks.at(0).suite == "total");
  CHECK(diff.failed() == 1);
  test::check_golden("diff_totals.txt", diff_text(diff, 5));
  CHECK_THROWS_AS(compare(base, now, {.fail_over = 10, .metrics = {Metric::kStep}}), Error);
}

TEST_CASE("a budget is about the new run alone") {
  const Measured run = measured("run", {});
  Budget budget;
  budget.names[Metric::kStep]["step"].time = 1e9;
  budget.names[Metric::kOps]["aten::mm"] = {.time = 1000, .calls = 2, .bytes = {}};
  budget.names[Metric::kOps]["aten::nothing"].time = 1;
  const Diff diff = compare(run, run, {.budget = &budget});
  CHECK(diff.checks.size() == 3);
  CHECK(diff.failed() == 1);
  CHECK(diff.checks[1].name == "ops: aten::mm");
  CHECK(diff.notes == std::vector<std::string>{"the budget's ops 'aten::nothing' is not in NEW"});
}

TEST_CASE("a metric of which there is nothing says so") {
  const Measured run = measured("run", {});
  const Diff diff = compare(run, run, {.fail_over = 1, .metrics = {Metric::kKernels}});
  CHECK(diff.notes == std::vector<std::string>{"nothing of the metric kernels is in both runs to be judged"});
}

TEST_CASE("a trace file says what its spool says") {
  SpoolBuilder b;
  train(b, {.mm_bytes = 1000});
  const test::LoadedTrace trace(b);
  const test::TemporaryDirectory directory;
  write_file(*find_format("kineto"), *trace, trace->processes, directory / "x.json");
  const Diff diff = compare(measure(*trace, "spool", 1), measure(directory / "x.json", "trace", 1), {});
  size_t compared = 0;
  for (const DiffTable& table : diff.tables)
    for (const DiffRow& each : table.rows) {
      CAPTURE(each.name);
      CHECK(each.fate == Fate::kBoth);
      CHECK(each.calls.base == each.calls.now);
      CHECK(each.bytes.base == each.bytes.now);
      CHECK(each.time.now == doctest::Approx(each.time.base).epsilon(0.001));
      ++compared;
    }
  CHECK(compared >= 7);
}

TEST_CASE("hostile names stay in their cells") {
  SpoolBuilder b;
  b.thread(100);
  b.at(0).op(1, "a\"<&>'|`\n\x01\xff\xef\xbf\xbf").at(1000).op_end(1);
  b.clean_exit(2000);
  const test::LoadedTrace trace(b);
  const Measured run = measure(*trace, "r\x1b[31m", 1);
  const Diff diff = compare(run, run, {.fail_over = 1, .metrics = {Metric::kOps}});
  const std::string xml = diff_junit(diff), markdown = diff_markdown(diff, 5);
  CHECK(xml.find("name=\"a&quot;&lt;&amp;&gt;'|`??\xef\xbf\xbd\xef\xbf\xbd\"") != xml.npos);
  CHECK(markdown.find("`a\"<&>'\\|'??\xef\xbf\xbd\xef\xbf\xbf`") != markdown.npos);
  for (const std::string& text : {xml, markdown, diff_text(diff, 5)})
    CHECK(text.find_first_of("\x01\x1b") == text.npos);
}

namespace {

// Steps that took `ns` each, each tenth a hundred times as long after the first 104 (`outliers`), of which windows have
// 20 typical and 4 slow ones.
Measured windowed(const std::string& name, uint64_t ns, uint64_t mm_ns, uint64_t steps = 200, bool outliers = false) {
  SpoolBuilder b;
  const TrackId thread = b.thread(100, "python3", 1);
  const FunctionId step = b.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const FunctionId main = b.function("/home/me/train.py", 10, "main", 9);
  const ObjectId sgd = b.object("SGD", ObjectKind::kOptimizer);
  b.meta("window", "auto");
  b.window(1, 0, 0, 20 * 1'000'000, WindowReason::kStart);
  b.on(thread).in_window(1).at(0).begin(main);
  uint64_t t = 0, key = 0;
  for (uint64_t i = 0; i < steps; ++i) {
    const bool is_slow = i >= 100 && i < 104;
    if (i == 100) {
      b.window(2, 100, t, t + 4 * 50'000'000, WindowReason::kSlow);
      b.on(thread).in_window(2).at(t + 1).frame(main);
    }
    const uint64_t took = is_slow                              ? 50'000'000
                          : i < 20                             ? 1'000'000
                          : outliers && i > 104 && i % 10 == 0 ? 100 * ns
                                                               : ns + (outliers ? i % 7 : 0);
    if (i < 20 || is_slow) {
      ++key;
      b.at(t + 10'000).op(key, "aten::mm").at(t + 10'000 + (is_slow ? 40'000'000 : mm_ns)).op_end(key);
      b.at(t + took - 5'000).begin(step, sgd).at(t + took - 1'000).end(step);
    }
    t += took;
    b.at(t).step_end(i + 1, i < 20 ? 1 : is_slow ? 2 : 0, i < 20 || is_slow ? 2 : 0);
  }
  b.clean_exit(t + 1'000);
  const test::LoadedTrace trace(b);
  return measure(*trace, name, 1);
}

}  // namespace

TEST_CASE("of runs in windows every step without one is compared, and typical ones with typical ones") {
  const Measured base = windowed("base", 700'000, 100'000), now = windowed("new", 900'000, 100'000);
  const Diff diff = compare(base, now, {.fail_over = 20, .metrics = {Metric::kStep}});
  REQUIRE(diff.by_step);
  CHECK(diff.failed() == 1);
  CHECK(row(diff, Metric::kStep, "step").time.base == 700'000);
  CHECK(row(diff, Metric::kStep, "step").time.now == 900'000);
  // 40 ms in slow steps are no part of it.
  CHECK(row(diff, Metric::kOps, "aten::mm").time.base == 100'000);
  CHECK(diff.head[0].find("and the times of 176 others") != std::string::npos);
}

TEST_CASE("a run in windows and a whole one are compared by the steps that were captured") {
  const Diff diff = compare(windowed("base", 700'000, 100'000), measured("new", {}), {});
  REQUIRE(diff.by_step);
  CHECK(row(diff, Metric::kStep, "step").time.base == doctest::Approx(1'000'000).epsilon(0.02));
  CHECK(diff.notes[0] == "NEW does not have the times of all its steps: the steps that were captured are compared");
}

TEST_CASE("steps of a long run and of a short one are compared, not averages of more and of fewer neighbours") {
  const Diff diff =
      compare(windowed("base", 700'000, 100'000, 400, true), windowed("new", 700'000, 100'000, 3000, true),
              {.fail_over = 5, .metrics = {Metric::kStep}});
  const Quantity& step = row(diff, Metric::kStep, "step").time;
  CHECK(step.now == doctest::Approx(step.base).epsilon(0.001));
  CHECK(step.p > kSignificance);
  CHECK(diff.failed() == 0);
}

TEST_CASE("peaks of the CPU are compared with peaks that were counted in the same way") {
  const auto run = [](const std::string& name, bool has_windows, uint64_t device) {
    SpoolBuilder b;
    const TrackId thread = b.thread(100);
    for (const uint16_t window : {1, 2}) {
      if (has_windows) b.window(window, 0, window * 200, window * 200 + 100);
      if (has_windows) b.in_window(window);
      b.on(thread).at(window * 200 + 10).raw(static_cast<uint8_t>(Kind::Memory), {4096, 1000, 9000, 0, device});
      b.at(window * 200 + 20).op(window, "aten::mm").at(window * 200 + 30).op_end(window);
    }
    b.clean_exit(1000);
    return measure(*test::LoadedTrace(b), name, 1);
  };
  constexpr uint64_t kCpu = 0xff00, kCuda = 1;
  const DiffOptions options{.fail_over = 10, .metrics = {Metric::kMemory}};
  const auto note = [](const Diff& diff) {
    return std::ranges::find(diff.notes,
                             "CPU: NEW has its peak within a window, BASE that of the whole run: they are "
                             "not judged") != diff.notes.end();
  };
  const Diff apart = compare(run("base", false, kCpu), run("new", true, kCpu), options);
  CHECK(apart.checks.empty());
  CHECK(note(apart));
  const Diff alike = compare(run("base", true, kCpu), run("new", true, kCpu), options);
  CHECK(alike.checks.size() == 1);
  CHECK_FALSE(note(alike));
  // A GPU's allocator counts always.
  CHECK(compare(run("base", false, kCuda), run("new", true, kCuda), options).checks.size() == 1);
}

}  // namespace diff_test
