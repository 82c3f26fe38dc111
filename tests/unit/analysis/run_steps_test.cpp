// All steps of a long run: which are captured, which are unusual, and what was different in them.
#include "formats/analysis/run_steps.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "formats/analysis/statistics.h"
#include "formats/trace/windows.h"
#include "tests/unit/support/spool_builder.h"

namespace run_steps_test {

using namespace torchprof;
using test::SpoolBuilder;

namespace {

constexpr uint64_t kMs = 1'000'000;

// 1,000 steps of 10 ms; each 200th takes 30 ms, 20 from step 500 on take 40 ms, in load().
struct LongRun {
  LongRun() {
    const TrackId thread = spool.thread(100);
    const FunctionId train = spool.function("train.py", 3, "train"), load = spool.function("train.py", 9, "load");
    // Windows of steps 0-9, 503-506, 710-712.
    spool.window(1, 0, 0, 100 * kMs, WindowReason::kStart);
    uint64_t now = 0;
    uint32_t window = 1;
    for (uint64_t step = 0; step < 1000; ++step) {
      const bool is_slow = step >= 500 && step < 520;
      const uint64_t took = is_slow ? 40 * kMs : step % 200 == 100 ? 30 * kMs : 10 * kMs;
      const bool opens = step == 503 || step == 710;
      if (opens) spool.window(++window, step, now + 1, now + (step == 503 ? 160 : 30) * kMs, WindowReason::kSlow);
      const bool is_open = step < 10 || (step >= 503 && step < 507) || (step >= 710 && step < 713);
      if (is_open) {
        spool.in_window(static_cast<uint16_t>(window)).on(thread).at(now + 2).begin(train);
        if (is_slow) spool.at(now + 3).begin(load).at(now + 31 * kMs).end(load);
        spool.at(now + took - 1).end(train);
      }
      now += took;
      spool.at(now).step_end(step + 1, is_open ? window : 0, is_open ? 2 : 0);
      if (step % 10 == 9) spool.resident((uint64_t{300} << 20) + step * 100'000);
    }
    spool.meta("window", "auto");
    spool.meta("window.cost", "15000000 of 1000000000");
    spool.clean_exit(now);
  }
  SpoolBuilder spool;
};

}  // namespace

TEST_CASE("a run's steps are counted, timed and named") {
  const LongRun made;
  const test::LoadedTrace trace(made.spool);
  const auto run = formats::run_steps_of(trace->processes[0]);
  REQUIRE(run);
  CHECK(run->count == 1000);
  CHECK(run->captured == 17);
  CHECK(run->captured_text == "0-9, 503-506, 710-712");
  CHECK(*run->cost == doctest::Approx(0.015));
  CHECK(run->median_ns == doctest::Approx(10 * kMs));
  CHECK(run->most_ns == doctest::Approx(40 * kMs));
  CHECK(run->line.size() == 60);
  REQUIRE(run->unusual.size() == 2);
  const formats::UnusualSteps& phase = run->unusual[0];
  CHECK(phase.is_row);
  CHECK(phase.first == 500);
  CHECK(phase.last == 519);
  CHECK(phase.times == doctest::Approx(4));
  CHECK(phase.captured == 4);
  CHECK(phase.what == "train.py(9): load");
  CHECK(phase.what_ns == doctest::Approx(31 * kMs).epsilon(0.02));
  const formats::UnusualSteps& single = run->unusual[1];
  CHECK_FALSE(single.is_row);
  CHECK(single.count == 4);
  CHECK(single.every == 200);
  CHECK(single.captured == 0);
  CHECK(single.what.empty());
  CHECK(run->memory.is_steady);
  CHECK(run->memory.step_bytes == doctest::Approx(100'000).epsilon(0.01));
}

TEST_CASE("what lies in a window that was given up is not there, nor does its step count as captured") {
  LongRun made;
  made.spool.window_given_up(2);
  const test::LoadedTrace trace(made.spool);
  const formats::Process& process = trace->processes[0];
  CHECK(process.windows.size() == 2);
  CHECK(process.windows_given_up == 1);
  CHECK(process.counts.python == 13);
  const auto run = formats::run_steps_of(process);
  REQUIRE(run);
  CHECK(run->captured_text == "0-9, 710-712");
  CHECK(run->unusual[0].what.empty());
}

TEST_CASE("a window whose reason is another one by now is the same window") {
  LongRun made;
  made.spool.window_stands_for(1, WindowReason::kSlow);
  const test::LoadedTrace trace(made.spool);
  const formats::Process& process = trace->processes[0];
  REQUIRE(process.windows.size() == 3);
  CHECK(process.windows[0].reason == WindowReason::kSlow);
  CHECK(process.windows[0].end - process.windows[0].begin == static_cast<int64_t>(100 * kMs));
  CHECK(process.windows_given_up == 0);
  CHECK(process.damage.records == 0);
  CHECK(formats::run_steps_of(process)->captured_text == "0-9, 503-506, 710-712");
}

TEST_CASE("what a step did is told by the window that had most of it, and nothing by steps of which all takes longer") {
  SpoolBuilder spool;
  const TrackId thread = spool.thread(100);
  const FunctionId train = spool.function("train.py", 3, "train"), load = spool.function("train.py", 9, "load"),
                   evaluate = spool.function("train.py", 20, "evaluate"),
                   forward = spool.function("linear.py", 1, "forward");
  uint64_t now = 0, number = 0;
  const auto step = [&](uint64_t took, uint16_t window, bool is_whole, bool is_evaluation = false) {
    if (window != 0) {
      const uint64_t from = is_whole ? now + 2 : now + took / 2;
      spool.in_window(window).on(thread).at(from).begin(is_evaluation ? evaluate : train);
      if (!is_evaluation) spool.at(from + 1).begin(load).at(from + took / 5).end(load);
      // Nearly all of an evaluation is spent in what every step does, too.
      const uint64_t called = is_evaluation ? from + 1 : from + took / 5 + 1;
      spool.at(called).begin(forward).at(is_evaluation ? now + took - 2 : called + 900).end(forward);
      spool.at(now + took - 1).end(is_evaluation ? evaluate : train);
    }
    now += took;
    spool.at(now).step_end(++number, window, window == 0 ? 0 : is_whole ? 2 : 1);
  };
  const uint64_t ms = kMs;
  spool.window(1, 0, 0, 100 * ms + 5000, WindowReason::kStart);  // a little longer than its ten steps
  spool.window(2, 10, 130 * ms, 160 * ms, WindowReason::kOverdue);
  spool.window(3, 51, 560 * ms, 660 * ms, WindowReason::kSlow);
  for (int i = 0; i < 10; ++i) step(10 * ms, 1, true);
  step(60 * ms, 2, false, true);
  for (int i = 0; i < 40; ++i) step(10 * ms, 0, false);
  for (int i = 0; i < 5; ++i) step(20 * ms, 3, true);
  for (int i = 0; i < 100; ++i) step(10 * ms, 0, false);
  spool.clean_exit(now);
  const auto run = formats::run_steps_of(test::LoadedTrace(spool)->processes[0]);
  REQUIRE(run);
  REQUIRE(run->unusual.size() == 2);
  const auto& single = run->unusual[run->unusual[0].is_row ? 1 : 0];
  const auto& row = run->unusual[run->unusual[0].is_row ? 0 : 1];
  CHECK(single.first == 10);
  CHECK(single.what == "train.py(20): evaluate");
  CHECK(single.what_ns == doctest::Approx(30 * ms).epsilon(0.1));
  CHECK(row.count == 5);
  CHECK(row.what == "");
  CHECK(row.is_even);
  // The window before it reaches some microseconds into the step: they say nothing of it.
  spool.window_given_up(2);
  const auto without = formats::run_steps_of(test::LoadedTrace(spool)->processes[0]);
  REQUIRE(without);
  CHECK(without->unusual[without->unusual[0].is_row ? 1 : 0].captured == 0);
}

TEST_CASE("a run that was captured whole, or without times of steps, has none") {
  SpoolBuilder whole;
  whole.thread(100);
  whole.at(kMs).step_end(1, 1, 2).at(2 * kMs).step_end(2, 1, 2);
  CHECK_FALSE(formats::run_steps_of(test::LoadedTrace(whole)->processes[0]));
  SpoolBuilder other;
  other.window(1, 3, kMs, 2 * kMs);
  CHECK_FALSE(formats::run_steps_of(test::LoadedTrace(other)->processes[0]));
}

TEST_CASE("ranges of steps are short") {
  CHECK(formats::step_ranges({}, 6).empty());
  CHECK(formats::step_ranges({3}, 6) == "3");
  CHECK(formats::step_ranges({0, 1, 2, 7, 9, 10}, 6) == "0-2, 7, 9-10");
  CHECK(formats::step_ranges({1, 3, 5, 7, 9, 11}, 4) == "1, 3, ..., 9, 11");
}

namespace {

// 20 steps of the beginning, then 30 windows of the last steps with 20 each, of which the last two are kept; but for
// three typical steps in the midst, which take a fifth longer. A step takes `ns`, step 610 four times as much.
test::LoadedTrace with_last_steps(uint64_t ns) {
  SpoolBuilder spool;
  const TrackId thread = spool.thread(100);
  const FunctionId train = spool.function("train.py", 3, "train"), load = spool.function("train.py", 9, "load"),
                   step_end = spool.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const ObjectId sgd = spool.object("SGD", ObjectKind::kOptimizer);
  spool.meta("window", "auto");
  spool.window(1, 0, 0, 20 * ns * 6 / 5, WindowReason::kStart);
  uint64_t now = 0, step = 0;
  uint32_t window = 1;
  const auto steps = [&](uint64_t count, bool is_kept, bool is_dearer) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t took = step == 610 ? 4 * ns : is_dearer ? ns * 6 / 5 : ns;
      if (is_kept) {
        spool.in_window(static_cast<uint16_t>(window)).on(thread).at(now + 2).begin(train);
        if (step == 610) spool.at(now + 3).begin(load).at(now + 3 * ns).end(load);
        spool.at(now + took - 1000)
            .begin(step_end, sgd)
            .at(now + took - 500)
            .end(step_end)
            .at(now + took - 1)
            .end(train);
      }
      now += took;
      spool.at(now).step_end(++step, window, 2);
    }
  };
  steps(20, true, true);
  for (int i = 0; i < 31; ++i) {
    const bool is_typical = i == 15, is_kept = is_typical || i > 28;
    const uint64_t count = is_typical ? 3 : 20, slow = i == 30 ? 3 * ns : 0;
    const uint64_t ends = now + count * (is_typical ? ns * 6 / 5 : ns) + slow;
    spool.window(++window, step, now + 1, ends, is_typical ? WindowReason::kTypical : WindowReason::kLast);
    steps(count, is_kept, is_typical);
    if (!is_kept) spool.window_given_up(window);
  }
  spool.clean_exit(now);
  return test::LoadedTrace(spool);
}

}  // namespace

TEST_CASE("the last steps are steps like those without a window: what windows add is measured by the others") {
  const test::LoadedTrace trace = with_last_steps(10 * kMs);
  const formats::Process& process = trace->processes[0];
  CHECK(process.windows.size() == 4);
  CHECK(process.windows_given_up == 0);  // they all were to be
  const auto run = formats::run_steps_of(process);
  REQUIRE(run);
  CHECK(run->count == 623);
  CHECK(run->captured_text == "0-19, 320-322, 583-622");
  REQUIRE(run->unusual.size() == 1);
  CHECK(run->unusual[0].first == 610);
  CHECK(run->unusual[0].captured == 1);
  CHECK(run->unusual[0].what == "train.py(9): load");
  CHECK(run->unusual[0].what_ns == doctest::Approx(30 * kMs).epsilon(0.01));  // not less: nothing was added to it
}

TEST_CASE("the last steps are no typical ones at even distances, and a comparison leaves them not out") {
  const test::LoadedTrace trace = with_last_steps(10 * kMs);
  const formats::StepSamples typical = formats::statistics_of(trace->processes[0]).samples;
  CHECK(typical.steps == 22);  // three, and the beginning but for its first one
  const formats::StepSamples compared = formats::sampled_statistics_of(trace->processes[0], 1).samples;
  CHECK(compared.steps > 40);
  CHECK(compared.every_ns.size() == 512);  // of 600
  CHECK(std::ranges::count(compared.every_ns, 10.0 * kMs) >= 511);
  CHECK(compared.every_steps == 560);  // but for those that were captured
}

TEST_CASE("a step that took far longer than the slow ones beside it is no part of their row") {
  SpoolBuilder spool;
  spool.window(1, 0, 0, 50 * kMs, WindowReason::kStart);
  uint64_t now = 0;
  const auto ms_of = [](uint64_t step) -> uint64_t {
    if (step == 308 || step == 515) return 150;  // among slow steps, and within a phase of them
    if (step == 306 || step == 307 || step == 399) return 25;
    return step >= 500 && step < 520 ? 40 : 10;
  };
  for (uint64_t step = 0; step < 1000; ++step) {
    now += ms_of(step) * kMs;
    spool.at(now).step_end(step + 1, step < 5 ? 1 : 0, step < 5 ? 2 : 0);
  }
  spool.meta("window", "auto");
  spool.clean_exit(now);
  const test::LoadedTrace trace(spool);
  const auto run = formats::run_steps_of(trace->processes[0]);
  REQUIRE(run);
  REQUIRE(run->unusual.size() == 3);
  const formats::UnusualSteps &phase = run->unusual[0], &longest = run->unusual[1], &others = run->unusual[2];
  CHECK(phase.is_row);
  CHECK(phase.first == 500);
  CHECK(phase.last == 519);
  CHECK(phase.count == 19);
  CHECK(phase.times == doctest::Approx(4));
  CHECK(longest.first == 308);
  CHECK(longest.last == 515);
  CHECK(longest.count == 2);
  CHECK(longest.times == doctest::Approx(15));
  CHECK_FALSE(others.is_row);
  CHECK(others.count == 3);
}

TEST_CASE("of steps that come again at a distance one that is captured names them all, also among others as slow") {
  SpoolBuilder spool;
  const TrackId thread = spool.thread(100);
  const FunctionId train = spool.function("train.py", 3, "train"), load = spool.function("train.py", 9, "load");
  constexpr uint64_t kCaptured = 6'050;  // others of its kind: each 200th from 50 on
  spool.window(1, 0, 0, 100 * kMs, WindowReason::kStart);
  uint64_t now = 0, random = 1;
  for (uint64_t step = 0; step < 10'000; ++step) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const bool is_one = step % 200 == 50, is_other = (random >> 33 & 255) == 0;
    const uint64_t took = (is_one || is_other ? 30 + step % 3 : 10) * kMs;
    const bool opens = step == kCaptured - 1, is_open = step < 10 || (step >= kCaptured - 1 && step <= kCaptured + 1);
    if (opens) spool.window(2, step, now + 1, now + 60 * kMs, WindowReason::kExpected);
    if (is_open) {
      spool.in_window(step < 10 ? 1 : 2).on(thread).at(now + 2).begin(train);
      if (step == kCaptured) spool.at(now + 3).begin(load).at(now + 21 * kMs).end(load);
      spool.at(now + took - 1).end(train);
    }
    now += took;
    spool.at(now).step_end(step + 1, is_open ? (step < 10 ? 1 : 2) : 0, is_open ? 2 : 0);
  }
  spool.meta("window", "auto");
  spool.clean_exit(now);
  const test::LoadedTrace trace(spool);
  const auto run = formats::run_steps_of(trace->processes[0]);
  REQUIRE(run);
  const auto named = std::ranges::find_if(run->unusual, [](const auto& u) { return !u.what.empty(); });
  REQUIRE(named != run->unusual.end());
  CHECK(named->what == "train.py(9): load");
  CHECK(named->first == 50);
  CHECK(named->last == 9'850);
  CHECK(named->count >= 50);
  CHECK(named->count <= 53);  // an accident beside one of them may look the same
  CHECK(named->every == 200);
  CHECK(named->captured == 1);
}

}  // namespace run_steps_test
