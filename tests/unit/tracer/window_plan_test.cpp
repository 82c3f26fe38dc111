// What -w auto finds worth a window: made-up steps, with a made-up clock.
#include "tracer/plan/window_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/unit/support/planned_program.h"
#include "tracer/plan/window_places.h"
#include "tracer/spool/completed.h"
#include "tracer/spool/layout.h"

namespace window_plan_test {

using namespace torchprof;

TEST_CASE("typical windows cover a run of any length evenly, within the overhead's budget") {
  for (const uint64_t steps : {3'000, 30'000, 300'000}) {
    Program program;
    program.run(steps);
    const auto typical = program.kept(WindowReason::kTypical);
    REQUIRE(typical.size() > 12);
    CHECK(typical.size() <= 49);
    uint64_t before = 0;
    const uint64_t distance = program.shared->distance;
    for (const uint64_t first : typical) {
      CHECK(first % distance == 0);
      CHECK(first - before == distance);
      before = first;
    }
    CHECK(steps - before <= distance);
    CHECK(program.plan.overhead(program.now) < 0.02);
  }
}

TEST_CASE("windows that are too big are fewer") {
  Program small, big;
  big.events = 50'000;
  small.run(10'000);
  big.run(10'000);
  CHECK(big.kept(WindowReason::kTypical).size() <= 10);
  CHECK(big.kept(WindowReason::kTypical).size() < small.kept(WindowReason::kTypical).size());
  CHECK_FALSE(big.given_up.empty());
}

TEST_CASE("a window that the user asked for stays, however big it is, and takes nothing from the others") {
  Program program;
  program.run(5'000);
  const uint64_t distance = program.shared->distance;
  const auto typical = program.kept(WindowReason::kTypical);
  const uint32_t asked = ++program.windows;
  program.plan.opened({asked, WindowReason::kAsked, program.step, false, 0});
  program.plan.closed(30, program.now);
  const auto events_of = [&](uint32_t number) { return number == asked ? 900'000U : 1'000U; };
  for (int i = 0; i < 10; ++i) program.plan.measure(program.windows, events_of);
  CHECK(program.shared->distance == distance);
  while (const uint32_t number = program.plan.take_unwanted(0).number) CHECK(number != asked);
  CHECK(program.kept(WindowReason::kTypical) == typical);
}

TEST_CASE("of windows in the midst of steps those stay whose steps turned out to last longest") {
  Program program;
  program.run(20'000);
  uint32_t longest = 0;
  for (int i = 0; i < 12; ++i) {
    // Each is seen a little later than the one before: that says nothing of how long it will last.
    const int64_t seen = kStep * (20 + 5 * i) / 10, lasts = kStep * (i == 0 ? 30 : 20);
    const bool is_granted = program.plan.wish_overdue(program.step, seen, program.now);
    REQUIRE((is_granted || i >= 6));  // there are six places
    if (!is_granted) continue;
    const uint32_t number = ++program.windows;
    if (i == 0) longest = number;
    program.plan.opened({number, WindowReason::kOverdue, program.step, false, 0});
    program.now += lasts;
    program.plan.step_ended(++program.step, lasts, true, true, program.now);
    program.plan.closed(0, program.now);
    program.run(50);
  }
  while (const uint32_t number = program.plan.take_unwanted(0).number) CHECK(number != longest);
}

TEST_CASE("a step that lasts far longer than all before it gets a window, though the budget is used up") {
  Program program({1'000'000, 0.0005});  // less than one window in 1,000 steps
  program.run(1'000);
  REQUIRE_FALSE(program.plan.wish_overdue(program.step, 3 * kStep, program.now));
  const auto lasts = [&](int64_t took) {
    if (!program.plan.wish_overdue(program.step, took, program.now)) return false;
    program.plan.opened({++program.windows, WindowReason::kOverdue, program.step, false, 0});
    program.now += took;
    program.plan.step_ended(++program.step, took, true, true, program.now);
    program.plan.closed(0, program.now);
    program.run(10);
    return true;
  };
  CHECK(lasts(15 * kStep));
  // One like it comes too early again, but for one that lasts twice as long. So these are few.
  CHECK_FALSE(lasts(20 * kStep));
  CHECK(lasts(31 * kStep));
  int granted = 0;
  for (int64_t times = 1; times < 100'000; times += 7) granted += lasts(times * kStep) && times < 1000;
  CHECK(granted <= 6);
}

TEST_CASE("what is more unusual has the higher score, however unusual both are") {
  for (double times = 0.01; times < 1e14; times *= 1.01) {
    CHECK(places::score_from(times) < places::score_from(times * 1.01));
    CHECK(places::times_from(places::score_from(times)) == doctest::Approx(times).epsilon(0.002));
  }
  CHECK(places::score_from(1e300) == 0xffff);
  CHECK(places::times_from(places::score_from(0)) == 0);
}

TEST_CASE("the slowest step of a run keeps its window, whatever else is slow and however large windows are") {
  Random random;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    Program program({1'000'000, random.below(2) == 0 ? 0.02 : 0.0005});
    program.looks_at_long_steps = true;
    program.events = static_cast<uint32_t>(100 + random.below(100'000));
    program.added = static_cast<int64_t>(random.below(static_cast<uint64_t>(kStep)));
    const uint64_t steps = 1'000 + random.below(5'000), slowest = 300 + random.below(steps - 400),
                   often = 20 + random.below(200);
    // By far: windows that are a few times slower than the others have any place that is free.
    const auto most = static_cast<int64_t>(20 + random.below(1'000'000));
    program.run(steps, [&](uint64_t step) {
      if (step == slowest) return 20 * most * kStep;
      return random.below(often) == 0 ? kStep * static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(most)))
                                      : kStep;
    });
    CHECK(program.keeps(slowest));
    CHECK((program.captured.contains(slowest + 1) || program.captured.contains(slowest + 2)));
  }
}

TEST_CASE("far longer steps keep their windows where lesser ones seem to come at regular distances") {
  size_t lost = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random{seed};
    Program program;
    program.looks_at_long_steps = true;
    program.events = 200;
    std::set<uint64_t> longest;
    while (longest.size() < 7) longest.insert(200 + 100 * random.below(17));
    const uint64_t often = 3 + random.below(30), apart = 50 + random.below(100);
    program.run(2'000, [&](uint64_t step) {
      if (longest.contains(step)) return 400 * kStep;
      if (step % apart == 7) return 2 * kStep;
      return random.below(often) == 0 ? kStep / 10 * static_cast<int64_t>(14 + random.below(8)) : kStep;
    });
    lost += static_cast<size_t>(std::ranges::count_if(longest, [&](uint64_t step) { return !program.keeps(step); }));
  }
  CHECK(lost == 0);
}

TEST_CASE("a step that sleeps costs nothing") {
  Program program;
  program.looks_at_long_steps = true;
  program.added = 0;
  program.events = 100;
  const auto ns = [](uint64_t step) { return step % 500 == 499 ? 5'000 * kStep : kStep; };
  program.run(6'000, ns);
  CHECK(program.plan.overhead(program.now) < 0.001);
  for (uint64_t step = 499; step < 6'000; step += 500) CHECK(program.captured.contains(step));
}

TEST_CASE("what windows cost is what they add, by the events in them") {
  for (const int64_t added : {kStep / 50, kStep / 10, kStep, 5 * kStep}) {
    Program program;
    program.looks_at_long_steps = true;
    program.added = added;
    Random random;
    int64_t bare = 0;
    int64_t in_start = 0;
    program.run(40);
    in_start = program.now;
    program.run(20'000, [&](uint64_t step) {
      const auto more = static_cast<int64_t>(random.below(kStep / 100));
      const int64_t ns = step % 1'000 == 999 ? 200 * kStep : kStep + more;
      bare += ns;
      return ns;
    });
    const double really =
        static_cast<double>(program.now - in_start - bare) / static_cast<double>(program.now - in_start);
    CAPTURE(added);
    CHECK(program.plan.overhead(program.now) > really * 2 / 3);
    CHECK(program.plan.overhead(program.now) < really * 4 / 3);
  }
}

TEST_CASE("a short run has typical windows, however dear they are") {
  Program program;
  program.switching = kStep;
  program.added = kStep;
  program.run(400);
  CHECK(program.kept(WindowReason::kTypical).size() >= 2);
}

TEST_CASE("a step that is so long that its window is within the budget by itself has one, whatever was spent before") {
  Program program;
  program.looks_at_long_steps = true;
  program.switching = 3 * kStep;  // as on a busy machine: nothing is left for a step as slow as another one
  program.run(3'000, [](uint64_t step) { return step % 300 == 299 ? 500 * kStep : kStep; });
  for (uint64_t step = 299; step < 3'000; step += 300) CHECK(program.captured.contains(step));
  CHECK(program.plan.overhead(program.now) < 0.04);
}

TEST_CASE("a long step has a window wherever it comes: soon after the beginning, or after another one") {
  for (const uint64_t first : {41, 44, 50, 64, 300}) {
    for (const uint64_t apart : {1, 2, 5, 9, 40}) {
      CAPTURE(first);
      CAPTURE(apart);
      Program program;
      program.looks_at_long_steps = true;
      program.run(1'000, [&](uint64_t step) {
        const bool is_long = step >= first && (step - first) % apart == 0 && (step - first) / apart < 8;
        return is_long ? 60 * kStep : kStep;
      });
      // While a window is open its steps are there anyway.
      for (uint64_t i = 0; i < 8; ++i) CHECK(program.captured.contains(first + i * apart));
    }
  }
}

TEST_CASE("windows are not dear because a step was long with which one began") {
  Program program;
  program.looks_at_long_steps = true;
  uint64_t began = 0;
  program.run(400, [&](uint64_t step) {
    const bool begins = program.open != 0 && !program.in_start && step == program.opened_step;
    if (began == 0 && begins) began = step;
    if (step == 50) return 200 * kStep;
    return began == 0 ? kStep : step == began ? 300 * kStep : step == began + 13 ? 150 * kStep : kStep;
  });
  REQUIRE(began != 0);
  CHECK(program.captured.contains(began + 13));
}

TEST_CASE("a phase that is far slower than all before it gets a window, though the budget is used up") {
  Program program({1'000'000, 0.0005});  // less than one window in 1,000 steps
  program.run(3'000, [](uint64_t step) {
    if (step >= 1'500 && step < 1'520) return 4 * kStep;
    return step % 100 == 99 ? 3 * kStep : kStep;
  });
  const auto slow = program.kept(WindowReason::kSlow);
  CHECK(std::ranges::any_of(slow, [](uint64_t first) { return first > 1'500 && first < 1'520; }));
  CHECK(slow.size() <= 3);
}

TEST_CASE(
    "a phase of slow steps gets a window in a short run, though long steps and accidents have used the budget up") {
  size_t lacks = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Random random{seed};
    Program program;
    program.looks_at_long_steps = true;
    program.added = kStep / 4 + static_cast<int64_t>(random.below(kStep / 2));
    program.switching = static_cast<int64_t>(random.below(kStep / 4));
    program.events_too_big = 125'000;
    program.is_too_big_from = 40 * kStep;
    const uint64_t phase = 1'200 + random.below(1'000), evaluation = 500 + random.below(600),
                   often = 100 + random.below(400);
    bool is_captured = false;
    program.run(3'000, [&](uint64_t step) {
      if (step >= phase && step < phase + 20) return 4 * kStep;
      if (step == evaluation) return static_cast<int64_t>(50 + random.below(50)) * kStep;
      if (step % 1'000 == 999) return 2 * kStep;
      return random.below(often) == 0 ? kStep * static_cast<int64_t>(2 + random.below(10)) : kStep;
    });
    for (uint64_t step = phase; step < phase + 20; ++step) is_captured = is_captured || program.captured.contains(step);
    lacks += !is_captured;
  }
  CHECK(lacks == 0);
}

TEST_CASE("a typical window in which a step was slow stays when the distance leaves it behind") {
  Program program;
  const auto ns = [](uint64_t step) { return step == 481 ? 8 * kStep : kStep; };
  program.run(500, ns);
  REQUIRE(program.captured.contains(481));
  REQUIRE(program.kept(WindowReason::kTypical).contains(480));
  program.run(29'500, ns);
  REQUIRE(480 % program.shared->distance != 0);
  CHECK(program.kept(WindowReason::kTypical).contains(480));
  CHECK(program.left_behind == std::set<uint64_t>{480});
}

TEST_CASE("a typical window in which a step was very slow stays, though one was asked for just before it") {
  for (const uint64_t before : {1, 2, 3}) {
    Program program;
    program.run(200);
    const uint64_t distance = program.shared->distance, first = (program.step / distance / 2 * 2 + 3) * distance;
    program.run(20'000, [&](uint64_t step) {
      return step == first ? 500 * kStep : step + before == first ? 3 * kStep : kStep;
    });
    CHECK(program.shared->distance > distance);
    const auto kept = program.plan.kept();
    CHECK(
        std::ranges::any_of(kept, [&](const WindowPlan::Kept& k) { return k.first <= first && first < k.first + 4; }));
  }
}

TEST_CASE("a typical window in which one rank was slow stays in all") {
  SharedPlan shared{};
  Program slow(shared), other(shared);
  const auto ns = [](uint64_t step) { return step == 481 ? 8 * kStep : kStep; };
  for (int i = 0; i < 20'000; ++i) {
    slow.run(1, ns);
    other.run(1);
  }
  REQUIRE(480 % shared.distance != 0);
  CHECK(slow.kept(WindowReason::kTypical) == other.kept(WindowReason::kTypical));
  CHECK(other.left_behind == std::set<uint64_t>{480});
}

TEST_CASE("a phase of slow steps gets a window, and keeps it") {
  Program program;
  program.run(30'000, [](uint64_t step) { return step >= 5'005 && step < 5'025 ? 4 * kStep : kStep; });
  size_t slow = 0;
  for (uint64_t step = 5'005; step < 5'025; ++step) slow += program.captured.contains(step);
  CHECK(slow >= 4);
  const auto kept = program.kept(WindowReason::kSlow);
  REQUIRE_FALSE(kept.empty());
  CHECK(*kept.begin() >= 5'006);
  CHECK(*kept.rbegin() <= 5'025);
}

TEST_CASE("steps that are slow at a regular distance are caught whole") {
  Program program;
  program.run(10'000, [](uint64_t step) { return step % 700 == 650 ? 3 * kStep : kStep; });
  size_t caught = 0;
  for (uint64_t step = 650; step < 10'000; step += 700) caught += program.captured.contains(step);
  CHECK(caught >= 3);
  CHECK_FALSE(program.kept(WindowReason::kExpected).empty());
}

TEST_CASE("long batches and evaluations are caught themselves, though a busy machine makes other steps slow, too") {
  Program program;
  Random random;
  program.run(30'000, [&](uint64_t step) {
    const uint64_t number = random.next();
    if (step % 1'000 == 650) return 2 * kStep;
    if (step % 2'000 == 1'300) return 12 * kStep;
    return number >> 33 & 127 ? kStep : kStep * static_cast<int64_t>(2 + (number >> 41) % 12);
  });
  size_t batches = 0, evaluations = 0;
  for (uint64_t step = 650; step < 30'000; step += 1'000) batches += program.captured.contains(step);
  for (uint64_t step = 1'300; step < 30'000; step += 2'000) evaluations += program.captured.contains(step);
  CHECK(batches >= 3);
  CHECK(evaluations >= 2);
  CHECK(program.plan.overhead(program.now) < 0.021);
}

TEST_CASE("a window for a slow step that does not come is given up") {
  Program program;
  program.run(3'000, [](uint64_t step) { return step == 1'000 || step == 1'500 ? 3 * kStep : kStep; });
  CHECK(program.captured.contains(2'000));
  CHECK(program.kept(WindowReason::kExpected).empty());
}

TEST_CASE("steps that differ by chance get no windows") {
  Program program;
  Random random;
  program.run(20'000, [&](uint64_t) { return kStep + static_cast<int64_t>(random.below(kStep / 4)); });
  CHECK(program.kept(WindowReason::kSlow).empty());
  CHECK(program.kept(WindowReason::kExpected).empty());
}

TEST_CASE("unusual windows stay within their share of the overhead") {
  Program program;
  program.run(20'000, [](uint64_t step) { return step / 50 % 2 == 0 && step > 200 ? 3 * kStep : kStep; });
  CHECK(program.plan.overhead(program.now) < 0.021);
}

TEST_CASE("a jump in memory gets a window after it") {
  Program program;
  program.run(2'000);
  program.plan.resident(program.step, uint64_t{1} << 30, program.now);
  program.plan.resident(program.step, (uint64_t{1} << 30) + (uint64_t{50} << 20), program.now);
  CHECK(program.kept(WindowReason::kMemory).empty());
  program.plan.resident(program.step, uint64_t{3} << 29, program.now);
  const uint64_t at = program.step;
  program.run(10);
  CHECK(program.kept(WindowReason::kMemory) == std::set<uint64_t>{at + 1});
}

TEST_CASE("ranks that share a plan have the same windows, though only one of them is slow") {
  SharedPlan shared{};
  Program a(shared), b(shared);
  for (int i = 0; i < 5'000; ++i) {
    a.run(1, [](uint64_t step) { return step >= 3'000 && step < 3'020 ? 4 * kStep : kStep; });
    b.run(1);
  }
  CHECK_FALSE(a.kept(WindowReason::kSlow).empty());
  for (const WindowReason reason : {WindowReason::kTypical, WindowReason::kSlow})
    CHECK(a.kept(reason) == b.kept(reason));
  // They do not double what another one has doubled.
  Program alone;
  alone.run(5'000);
  CHECK(shared.distance <= 2 * alone.shared->distance);
}

TEST_CASE("a rank that is some steps ahead opens what another one asks for at its next step") {
  SharedPlan shared{};
  Program ahead(shared), behind(shared);
  ahead.run(1'009);
  for (int i = 0; i < 2'000; ++i) {
    behind.run(1, [](uint64_t step) { return step == 1'502 ? 4 * kStep : kStep; });
    if (behind.step > 1'000) ahead.run(1);
  }
  CHECK(behind.kept(WindowReason::kSlow) == std::set<uint64_t>{1'504});
  CHECK(ahead.kept(WindowReason::kSlow) == behind.kept(WindowReason::kSlow));
  CHECK(ahead.captured.contains(ahead.step - behind.step + 1'504));
  CHECK_FALSE(ahead.captured.contains(1'504));
}

TEST_CASE("a phase of slow steps is captured though single steps took longer") {
  Program program;
  Random random;
  program.run(20'000, [&](uint64_t step) {
    if (step >= 15'000 && step < 15'020) return 40 * kStep;
    const uint64_t number = random.next();
    return (number >> 33) % 200 == 0 ? kStep * static_cast<int64_t>(40 + (number >> 41) % 60) : kStep;
  });
  const auto slow = program.kept(WindowReason::kSlow);
  CHECK(std::ranges::any_of(slow, [](uint64_t first) { return first > 15'000 && first < 15'020; }));
}

TEST_CASE("a window that could not open in time leaves its place to others") {
  Program program;
  program.run(2'000);
  program.can_open = false;  // as for 0.3 s after a window on a GPU
  program.run(100, [](uint64_t step) { return step % 40 == 39 ? 6 * kStep : kStep; });
  program.can_open = true;
  CHECK(program.kept(WindowReason::kSlow).empty());
  program.run(3'000, [](uint64_t step) { return step == 3'000 ? 3 * kStep : kStep; });
  // Less slow than those that had no window.
  CHECK(program.kept(WindowReason::kSlow) == std::set<uint64_t>{3'002});
}

TEST_CASE("where unusual windows are too big, those that are no more unusual than one that made way get none") {
  Program program;
  program.events = 30'000;  // 25 fill the room for all
  Random random;
  const auto some_are_slow = [&](uint64_t) { return random.below(100) == 0 ? 2 * kStep : kStep; };
  program.run(100'000, some_are_slow);
  const uint32_t windows = program.windows;
  CHECK(program.kept(WindowReason::kSlow).size() >= 3);
  program.run(100'000, some_are_slow);
  CHECK(program.windows - windows < 300);
  // What is far more unusual still gets one.
  const uint64_t at = program.step + 50;
  program.run(100, [&](uint64_t step) { return step == at ? 20 * kStep : kStep; });
  CHECK(program.kept(WindowReason::kSlow).contains(at + 2));
}

TEST_CASE("what it takes to open and close windows is part of their cost") {
  Program program;
  program.switching = kStep;  // as CUPTI's on a GPU
  program.added = kStep / 20;
  program.run(20'000);
  // Two for each window after the beginning.
  const double spent = 2.0 * (program.windows - 1) * kStep / static_cast<double>(program.now);
  CHECK(spent < 0.02);
  CHECK(program.plan.overhead(program.now) > 0.8 * spent);
}

TEST_CASE("without steps there are windows by time, at growing distances") {
  WindowPlan plan;
  SharedPlan shared{};
  plan.begin({}, shared);
  plan.start_is_over(0);
  uint32_t number = 1;
  int64_t opened = 0;
  for (int64_t elapsed = 0; elapsed < int64_t{24} * 3600 * int64_t{1'000'000'000}; elapsed += 500'000'000) {
    const auto due = plan.due_at(elapsed, false);
    CHECK(plan.due_at(elapsed, true).reason == (elapsed < WindowPlan::kQuiet ? WindowReason::kNone : due.reason));
    if (due.reason == WindowReason::kNone) continue;
    CHECK(elapsed >= WindowPlan::kTimeUnit);
    opened += plan.time_length();
    plan.opened({++number, due.reason, due.first, true, 0});
    plan.measure(number, [](uint32_t) { return 1000u; });
    while (plan.take_unwanted(0).number != 0) {
    }
  }
  CHECK(plan.kept().size() > 12);
  CHECK(plan.kept().size() <= 50);
  CHECK(plan.time_length() == WindowPlan::kMostTimeLength);
  CHECK(opened < int64_t{24} * 36 * int64_t{1'000'000'000});  // a hundredth of the time
}

TEST_CASE("chunks of a window are free once it is given up, also those that are completed later") {
  WindowChunks chunks;
  REQUIRE(chunks.prepare(100));
  uint64_t offset = 0;
  chunks.push(4096, 1);
  chunks.push(4096 + kChunkSize, 2);
  chunks.push(4096 + uint64_t{2} * kChunkSize, 2);
  CHECK(chunks.pop(offset, 4) == 0);
  chunks.give_up(2);
  CHECK(chunks.pop(offset, 4) == 2);
  CHECK(offset == 4096 + kChunkSize);
  chunks.push(4096 + uint64_t{5} * kChunkSize, 2);
  CHECK(chunks.pop(offset, 4) == 1);
  CHECK(offset == 4096 + uint64_t{5} * kChunkSize);
  CHECK(chunks.pop(offset, 4) == 0);
}

}  // namespace window_plan_test
