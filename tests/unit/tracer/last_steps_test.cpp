// -w auto: which programs are recorded in every step, so that their last ones are there, and how much of that is kept.
#include "tracer/plan/last_steps.h"

#include <doctest/doctest.h>

#include "tests/unit/support/planned_program.h"

namespace last_steps_test {

using namespace torchprof;

namespace {

// Ten events a step of 10 ms: a thousandth of a per cent of its time.
void make_cheap(Program& program) {
  program.events = 30;
  program.added = 10'000;
}
uint64_t first_of_last(const Program& program) {
  const auto kept = program.kept(WindowReason::kLast);
  return kept.empty() ? UINT64_MAX : *kept.begin();
}

}  // namespace

TEST_CASE("where a step has few events, the last steps are kept wherever the program ends") {
  Program program;
  make_cheap(program);
  program.run(500);
  for (const uint64_t steps : {1, 1, 7, 1, 300, 1, 1, 2'000, 5, 20'000, 1, 50'000, 3}) {
    program.run(steps);
    CAPTURE(program.step);
    const uint64_t length = program.shared->last_steps;
    REQUIRE(length >= 200);  // two seconds
    const uint64_t first = first_of_last(program);
    CHECK(first + 3 <= program.step);
    // Another window may be open at the end.
    CHECK(first + 2 * length + 10 >= program.step);
    CHECK(program.kept(WindowReason::kLast).size() <= 64);
    // None is missing but one before each other window.
    for (uint64_t step = first; step + 2 < program.step; ++step)
      CHECK((program.captured.contains(step) || program.captured.contains(step + 1)));
  }
  CHECK(program.plan.overhead(program.now) < 0.02);
  CHECK(program.windows < 1'000);
}

TEST_CASE("typical windows and those of slow steps are the same beside the last steps") {
  const auto slow = [](uint64_t step) { return step >= 5'000 && step < 5'020 ? 4 * kStep : kStep; };
  Program cheap, costly;
  make_cheap(cheap);
  cheap.run(20'000, slow);
  costly.run(20'000, slow);
  REQUIRE(cheap.shared->last_steps != 0);
  REQUIRE(costly.shared->last_steps == 0);
  for (const Program* program : {&cheap, &costly}) {
    const auto typical = program->kept(WindowReason::kTypical);
    CHECK(typical.size() > 12);
    for (const uint64_t first : typical) {
      CHECK(first % program->shared->distance == 0);
      for (uint64_t step = first; step < first + 3; ++step) CHECK(program->captured.contains(step));
    }
    const auto after_slow = program->kept(WindowReason::kSlow);
    REQUIRE(after_slow.size() >= 1);
    CHECK(*after_slow.begin() <= 5'003);
  }
}

TEST_CASE("where steps have many events, or get slower by them, nothing is recorded for the last steps") {
  Program many, slower;
  make_cheap(many);
  make_cheap(slower);
  many.events = 3'000;        // 1,000 a step of 10 ms: 3 %
  slower.added = kStep / 10;  // though there are few
  for (Program* program : {&many, &slower}) {
    program->run(5'000);
    CHECK(program->shared->last_steps == 0);
    CHECK(program->kept(WindowReason::kLast).empty());
  }
}

TEST_CASE("ranks have the same last steps, and none of them if it is too much for one") {
  SharedPlan shared{};
  Program a(shared), b(shared);
  make_cheap(a);
  make_cheap(b);
  for (int i = 0; i < 5'000; ++i) a.run(1), b.run(1);
  CHECK_FALSE(a.kept(WindowReason::kLast).empty());
  CHECK(a.kept(WindowReason::kLast) == b.kept(WindowReason::kLast));
  b.events = 3'000;
  for (int i = 0; i < 5'000; ++i) a.run(1), b.run(1);
  CHECK(shared.last_steps == SharedPlan::kNoLastSteps);
  CHECK(a.kept(WindowReason::kLast).empty());
  CHECK(b.kept(WindowReason::kLast).empty());
}

TEST_CASE("windows of the last steps get longer, so that a process does not run out of their numbers") {
  last_steps::Known known{.overhead = 0.02, .events = 1'000'000, .step = 100'000'000, .events_a_step = 100};
  CHECK(last_steps::length(known) == 32);  // two seconds are 20 steps
  double windows = 0;
  for (double elapsed = 0; elapsed < 30 * 24 * 3600;) {
    known.elapsed = static_cast<int64_t>(elapsed * 1e9);
    const uint64_t length = last_steps::length(known);
    if (length == 0) break;  // they would have too many events
    elapsed += static_cast<double>(length) * 0.1;
    ++windows;
  }
  CHECK(windows < 30'000);
  known.elapsed = 0;
  known.opening = 20'000'000;  // as with CUPTI
  CHECK(last_steps::length(known) == 256);
}

}  // namespace last_steps_test
