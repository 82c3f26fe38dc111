// What a thread of ours saw of the others, as a timeline has it.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>

#include "formats/timeline/build.h"
#include "tests/unit/support/spool_builder.h"

namespace samples_test {

using namespace torchprof;
using test::SpoolBuilder;

namespace {

constexpr uint64_t kMs = 1'000'000;

// "main.py(3): run < main.py(9): work", outermost first.
std::string stack_of(const formats::Timeline& timeline, uint32_t frame) {
  std::string text;
  for (; frame != 0; frame = timeline.frames[frame].caller) {
    REQUIRE(timeline.frames[frame].caller < frame);
    text = std::string(timeline.text(timeline.frames[frame].name)) + (text.empty() ? "" : " < ") + text;
  }
  return text;
}

}  // namespace

TEST_CASE("stacks, lines and times come back as they were seen") {
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    SpoolBuilder spool;
    spool.on(spool.thread(100)).meta("window", "auto");
    std::vector<FunctionId> functions;
    for (int i = 0; i < 5; ++i) functions.push_back(spool.function("main.py", 10, "f" + std::to_string(i)));
    std::vector<std::string> stacks{""};
    for (uint32_t id = 1; id <= 40; ++id) {
      const uint32_t caller = random() % id, function = random() % 5, line = random() % 90 + 10;
      spool.at(10).seen(StackNode{{}, id, caller, functions[function], line});
      stacks.push_back(stacks[caller] + (caller ? " < " : "") + "main.py(" + std::to_string(line) + "): f" +
                       std::to_string(function));
    }
    std::vector<Sample> made;
    for (uint64_t i = 1; i <= 100; ++i) {
      const uint32_t period = random() % 20'000 + 1, ran = random() % (period + 1);
      const Sample sample{{},
                          static_cast<uint32_t>(100 + random() % 2),
                          static_cast<uint32_t>(random() % 41),
                          period,
                          ran,
                          static_cast<uint32_t>(random() % (period - ran + 1)),
                          7,
                          {},
                          SampledWait::kChild,
                          0,
                          {},
                          0,
                          0};
      spool.at(i * 20 * kMs).seen(sample);
      made.push_back(sample);
    }
    spool.on(spool.thread(102)).at(2100 * kMs).begin(functions[0]).at(2200 * kMs).end(functions[0]);
    spool.clean_exit(2300 * kMs);
    const test::LoadedTrace trace(spool);
    const formats::Timeline timeline = formats::timeline_of(trace->processes[0], {});
    REQUIRE(timeline.samples.size() == made.size());
    for (size_t i = 0; i < made.size(); ++i) {
      const formats::TimelineSample& s = timeline.samples[i];
      CHECK(s.tid == made[i].tid);
      CHECK(stack_of(timeline, s.frame) == stacks[made[i].node]);
      CHECK(s.ns() == made[i].period_us * int64_t{1000});
      CHECK(s.ran_ns == made[i].ran_us * int64_t{1000});
      CHECK(s.queued_ns == made[i].queued_us * int64_t{1000});
      CHECK(s.waited_ns() >= 0);
      CHECK(s.wait == SampledWait::kChild);
      CHECK(s.what == 7);
    }
  }
}

TEST_CASE("what is damaged has no stack, and no time that is less than none") {
  SpoolBuilder spool;
  spool.on(spool.thread(100)).meta("window", "auto");
  const FunctionId f = spool.function("main.py", 1, "f");
  spool.at(10).seen(StackNode{{}, 3, 0, f, 1}).seen(StackNode{{}, 4, 9, f, 2}).seen(StackNode{{}, UINT32_MAX, 0, f, 3});
  spool.seen(StackNode{{}, 0, 0, f, 4}).seen(StackNode{{}, 5, 2, FunctionId{77}, 5});
  for (const uint32_t node : {3u, 4u, 5u, 6u, UINT32_MAX})
    spool.at(30).seen(
        Sample{{}, 100, node, 5, UINT32_MAX, UINT32_MAX, 0, {}, static_cast<SampledWait>(200), 1, {}, 0, 0});
  spool.clean_exit(60);
  const test::LoadedTrace trace(spool);
  const formats::Timeline timeline = formats::timeline_of(trace->processes[0], {});
  REQUIRE(timeline.samples.size() == 5);
  for (const formats::TimelineSample& s : timeline.samples) {
    CHECK(s.frame < timeline.frames.size());
    CHECK(s.ran_ns == s.ns());
    CHECK(s.waited_ns() == 0);
    CHECK(s.wait == SampledWait::kCount);
  }
  CHECK(stack_of(timeline, timeline.samples[0].frame) == "main.py(1): f");
  CHECK(timeline.samples[1].frame == 4);
  CHECK(stack_of(timeline, 4).empty());
}

}  // namespace samples_test
