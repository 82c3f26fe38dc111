// What looks at a thread say of stretches of time.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "formats/advice/thread_use.h"
#include "formats/advice/wait_text.h"
#include "formats/timeline/thread_looks.h"

namespace thread_looks_test {

using namespace torchprof;
using namespace torchprof::formats;

namespace {

TimelineSample look(int64_t begin, int64_t end, int64_t ran, int64_t queued, SampledWait wait, uint32_t frame = 0) {
  return {.begin = begin,
          .end = end,
          .ran_ns = ran,
          .queued_ns = queued,
          .tid = 100,
          .row = 0,
          .frame = frame,
          .what_name = 0,
          .wait = wait};
}

}  // namespace

TEST_CASE("each look counts once, for all of its time, wherever time is divided") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Timeline timeline;
    timeline.frames.resize(1);
    int64_t at = 0, all = 0;
    for (int i = 0; i < 60; ++i) {
      const int64_t ns = 1 + random() % 40, ran = random() % (ns + 1), queued = random() % (ns - ran + 1);
      // The kernel says what a thread waits for only where it waits.
      const SampledWait wait = ran + queued == ns ? SampledWait::kUnknown : static_cast<SampledWait>(1 + random() % 9);
      timeline.samples.push_back(look(at, at + ns, ran, queued, wait));
      at += ns;
      all += ns;
    }
    const ThreadLooks looks(timeline, 0);
    REQUIRE(looks.all().size() == 60);
    ThreadAccount divided;
    double count = 0;
    int64_t begin = 0;
    size_t next = 0;
    while (begin <= at) {
      const int64_t end = begin + 1 + random() % 90;
      for (; next < 60 && looks.all()[next]->end < end; ++next) {
        const ThreadAccount before = divided;
        looks.add(*looks.all()[next], begin, end, divided);
        CHECK(divided.all_ns() - before.all_ns() == looks.all()[next]->ns());
        count += ThreadLooks::weight(*looks.all()[next]);
      }
      begin = end;
    }
    CHECK(next == 60);
    CHECK(divided.all_ns() == all);
    CHECK(divided.looks == count);
    CHECK(divided.ran_ns >= 0);
    CHECK(divided.queued_ns >= 0);
    // In one stretch it is what the kernel said.
    ThreadAccount whole;
    int64_t ran = 0, queued = 0;
    for (const TimelineSample* l : looks.all()) {
      looks.add(*l, 0, at + 1, whole);
      ran += l->ran_ns;
      queued += l->queued_ns;
    }
    CHECK(whole.ran_ns == ran);
    CHECK(whole.queued_ns == queued);
    CHECK(whole.waited_ns() == all - ran - queued);
  }
}

TEST_CASE("a wait that goes on counts as the looks that were in it; where nothing is known of waits nothing is said") {
  CHECK(ThreadLooks::weight(look(0, 1'000'000'000, 0, 0, SampledWait::kSleep)) == 50);
  CHECK(ThreadLooks::weight(look(0, 1'000'000'000, 1, 0, SampledWait::kSleep)) == 1);
  Timeline blind;
  blind.frames.resize(1);
  blind.samples = {look(0, 100, 20, 0, SampledWait::kUnknown), look(100, 200, 0, 0, SampledWait::kUnknown)};
  ThreadAccount account;
  const ThreadLooks looks(blind, 0);
  for (const TimelineSample* l : looks.all()) looks.add(*l, l->end - 1, l->end + 1, account);
  CHECK(account.all_ns() == 0);
  CHECK(account.looks == 0);
}

TEST_CASE("to wait for a processor changes nothing of what is said of other waits") {
  std::mt19937 random(12);
  Timeline timeline;
  int told = 0;
  for (int round = 0; round < 1000; ++round) {
    ThreadAccount quiet;
    quiet.ran_ns = 1'000'000 + random() % 9'000'000;
    quiet.waits[{SampledWait::kSleep}] = 1'000'000 + random() % 30'000'000;
    quiet.looks = 1 + random() % 12;
    ThreadAccount busy = quiet;
    busy.queued_ns = quiet.all_ns() * static_cast<int64_t>(random() % 5);
    busy.looks = quiet.looks * static_cast<double>(busy.all_ns()) / static_cast<double>(quiet.all_ns());
    const auto of_quiet = wait_text(timeline, quiet), of_busy = wait_text(timeline, busy);
    REQUIRE(of_quiet.has_value() == of_busy.has_value());
    told += of_quiet.has_value();
    if (of_quiet) CHECK(of_quiet->does == of_busy->does);
  }
  CHECK(told > 100);
  CHECK(told < 900);
}

TEST_CASE("the line in a function is that of its innermost frame") {
  Timeline timeline;
  const auto frame = [&](uint32_t caller, const char* name) {
    timeline.frames.push_back({caller, name ? timeline.name(name) : 0});
    return static_cast<uint32_t>(timeline.frames.size() - 1);
  };
  frame(0, nullptr);
  const uint32_t outer = frame(0, "train.py(20): work"), inner = frame(outer, "train.py(22): work");
  const uint32_t library = frame(inner, "numpy/core.py(9): dot");
  const auto text = [&](uint32_t name) { return timeline.text(name); };
  CHECK(text(line_in_function(timeline, library, "train.py(18): work")) == "train.py(22): work");
  CHECK(text(line_in_function(timeline, outer, "train.py(18): work")) == "train.py(20): work");
  CHECK(line_in_function(timeline, library, "other.py(18): work") == 0);
  CHECK(line_in_function(timeline, library, "train.py(18): rest") == 0);
  CHECK(line_in_function(timeline, 0, "train.py(18): work") == 0);
}

TEST_CASE("without readings at the ends of steps, looks tell how long a thread had no processor") {
  const auto use_of = [](bool knows_machine, int looks, int64_t queued_percent) {
    constexpr int64_t kMs = 1'000'000;
    Timeline timeline;
    timeline.frames.resize(1);
    timeline.rows.resize(1);
    timeline.rows[0].thread = "100 (python)";
    timeline.rows[0].spans.push_back(
        {.begin = 0, .end = 1000 * kMs, .name = timeline.name("serve.py(3): main"), .kind = SpanKind::kPython});
    timeline.rows[0].spans.push_back(
        {.begin = kMs, .end = 900 * kMs, .name = timeline.name("aten::mm"), .kind = SpanKind::kOperator});
    for (int64_t i = 0; i < 10; ++i)
      timeline.steps.push_back({i * 100 * kMs, (i + 1) * 100 * kMs, static_cast<uint64_t>(i)});
    for (int64_t i = 0; i < looks; ++i)
      timeline.samples.push_back(look(i * 20 * kMs, (i + 1) * 20 * kMs, (100 - queued_percent) * kMs / 5,
                                      queued_percent * kMs / 5, SampledWait::kUnknown));
    if (knows_machine)
      timeline.machine_use.push_back({.begin = 0,
                                      .end = 1000 * kMs,
                                      .busy_ns = 2000 * kMs,
                                      .process_ran_ns = 500 * kMs,
                                      .processors = 2,
                                      .allowed = 2});
    timeline.end = 1000 * kMs;
    timeline.finish();
    return thread_use_of(StepView(timeline));
  };
  const ThreadUse use = use_of(true, 40, 30);
  REQUIRE(use.typical_queued());
  CHECK(*use.typical_queued() == 30'000'000);
  CHECK(use.queued_share == doctest::Approx(0.3));
  CHECK(use.process_ran == doctest::Approx(0.5));
  CHECK(use.others_ran.value_or(0) == doctest::Approx(1.5));
  CHECK(!use.typical_slept());
  CHECK(!use_of(true, 4, 30).typical_queued());    // too few looks
  CHECK(!use_of(false, 40, 30).typical_queued());  // who had the processors is not known
  CHECK(*use_of(true, 40, 0).typical_queued() == 0);
}

}  // namespace thread_looks_test
