// What steps' threads spent their time with, from totals.
#include "formats/analysis/step_use.h"

#include <doctest/doctest.h>

#include <random>

#include "formats/timeline/build.h"
#include "tests/unit/support/spool_builder.h"

namespace step_use_test {

using namespace torchprof;
using test::SpoolBuilder;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_CASE("of whatever steps ran and queued, the rest is sleep") {
  std::mt19937 random(7);
  const auto below = [&random](uint64_t end) { return random() % end; };
  struct Part {
    uint64_t ran, queued, slept, others, resident;
  };
  for (int round = 0; round < 20; ++round) {
    SpoolBuilder spool;
    spool.on(spool.thread(100)).meta("window", "auto");
    std::vector<Part> parts;
    uint64_t now = 0, ran = 0, queued = 0, process = 0;
    for (uint64_t step = 1; step <= 30; ++step) {
      const Part p{below(20 * kMs), below(20 * kMs), below(20 * kMs) + 1, below(9 * kMs), below(1 << 30) + 1};
      now += p.ran + p.queued + p.slept;
      ran += p.ran;
      queued += p.queued;
      process += p.ran + p.others;
      spool.at(now).step_end(step, 0, 0).resident(p.resident).used(ProcessorTime{{}, 100, 0, ran, queued, process});
      parts.push_back(p);
    }
    spool.clean_exit(now);
    const test::LoadedTrace trace(spool);
    const auto uses = formats::step_use_of(trace->processes[0]);
    REQUIRE(uses.size() == parts.size() - 1);
    for (size_t i = 0; i < uses.size(); ++i) {
      const Part& p = parts[i + 1];
      CHECK(uses[i].steps == 1);
      CHECK(uses[i].tid == 100);
      CHECK(uses[i].knows_queued);
      CHECK(uses[i].ran_ns == doctest::Approx(p.ran));
      CHECK(uses[i].queued_ns == doctest::Approx(p.queued));
      CHECK(uses[i].slept_ns() == doctest::Approx(p.slept).epsilon(0.001));
      CHECK(uses[i].process_ran_ns == static_cast<int64_t>(p.ran + p.others));
      CHECK(uses[i].resident_bytes == p.resident);
    }
    CHECK(formats::timeline_of(trace->processes[0], {}).step_use.size() == uses.size());
  }
}

TEST_CASE("threads have intervals of their own, and several steps may lie in one") {
  SpoolBuilder spool;
  spool.on(spool.thread(100)).meta("window", "auto");
  for (uint64_t step = 1; step <= 12; ++step) {
    spool.at(step * 10 * kMs).step_end(step, 0, 0);
    if (step % 3 == 0) spool.used(ProcessorTime{{}, 100 + static_cast<uint32_t>(step % 2), 0, step * kMs, 0, 0});
  }
  spool.clean_exit(200 * kMs);
  const test::LoadedTrace trace(spool);
  const auto uses = formats::step_use_of(trace->processes[0]);
  REQUIRE(uses.size() == 2);  // steps 3 to 9 of one, 6 to 12 of the other
  for (const formats::StepUse& use : uses) {
    CHECK(use.steps == 6);
    CHECK(use.ran_ns == doctest::Approx(6 * kMs));
    CHECK(use.ns() == doctest::Approx(60 * kMs));
  }
  CHECK(uses[0].tid == 101);
}

TEST_CASE("what the kernel does not say is not known, and totals that fall say nothing") {
  SpoolBuilder spool;
  spool.on(spool.thread(100)).meta("window", "auto");
  constexpr uint64_t kNone = ProcessorTime::kNotKnown;
  const auto used = [&spool](uint64_t at, uint64_t ran, uint64_t queued) {
    spool.at(at * kMs).used(ProcessorTime{{}, 100, 0, ran * kMs, queued, ran * kMs});
  };
  used(10, 1, kNone);
  used(20, 5, kNone);
  used(30, 4, kNone);
  used(40, 1000, kMs);
  used(50, 1001, UINT64_MAX - 1);
  spool.clean_exit(60 * kMs);
  const test::LoadedTrace trace(spool);
  const auto uses = formats::step_use_of(trace->processes[0]);
  REQUIRE(uses.size() == 3);
  CHECK_FALSE(uses[0].knows_queued);
  CHECK(uses[0].ran_ns == doctest::Approx(4 * kMs));
  CHECK(uses[0].slept_ns() == doctest::Approx(6 * kMs));
  for (const formats::StepUse& use : uses) {
    CHECK(use.ran_ns >= 0);
    CHECK(use.queued_ns >= 0);
    CHECK(use.slept_ns() >= 0);
  }
}

TEST_CASE("what other programs have of the machine is what is busy without this one") {
  SpoolBuilder spool;
  spool.on(spool.thread(100)).meta("window", "auto");
  for (uint64_t s = 1; s <= 3; ++s) {
    // Of 4 processors one is idle; this process has one and a half.
    spool.at(s * 1000 * kMs).used(ProcessorTime{{}, 100, 0, s * 1000 * kMs, 0, s * 1500 * kMs});
    spool.used(MachineTime{{}, 77'000 * kMs + s * 1000 * kMs, 4, 2, 16, 0});
  }
  spool.used(MachineTime{{}, 0, 4, 2, 0, 0}).at(9000 * kMs).used(MachineTime{{}, UINT64_MAX, 4, 2, 0, 0});
  spool.clean_exit(9500 * kMs);
  const test::LoadedTrace trace(spool);
  const auto uses = formats::machine_use_of(trace->processes[0]);
  REQUIRE(uses.size() >= 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(uses[i].processors == 4);
    CHECK(uses[i].allowed == 2);
    CHECK(uses[i].operator_threads == 16);
    CHECK(uses[i].busy_ns == doctest::Approx(3000 * kMs));
    CHECK(uses[i].others_ns() == doctest::Approx(1500 * kMs));
  }
  for (const formats::MachineUse& use : uses) CHECK(use.others_ns() >= 0);
}

}  // namespace step_use_test
