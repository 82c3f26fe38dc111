// What advice makes of looks at threads: the line inside a function, and what a wait is for.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace sampled_advice_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

constexpr uint64_t kMs = 1'000'000, kStep = 100 * kMs;
constexpr uint32_t kTid = 100, kLines = 10;

// Of 20 ms, which it ran but where it waits.
Sample look_at(uint32_t node, SampledWait wait, StringId what) {
  const uint32_t ran = wait != SampledWait::kUnknown ? 500 : 20'000;
  return {{}, kTid, node, 20'000, ran, 0, 0, what, wait, 0, {}, 0, 0};
}

// What is said of 21 steps of 100 ms in train(), whose line 15 is node 1; `body` adds what each of them does.
std::string advice_of(SpoolBuilder& b, const std::function<void(uint64_t step, uint64_t begin)>& body) {
  const FunctionId train = b.function("/home/u/train.py", 12, "train");
  b.on(b.thread(kTid)).at(1000).begin(train);
  b.seen(StackNode{{}, 1, 0, train, 15});
  for (uint64_t step = 0; step < 21; ++step) {
    const uint64_t begin = kMs + step * kStep;
    b.at(begin).annotation(step + 1, std::string("ProfilerStep#").append(std::to_string(step)));
    body(step, begin);
    b.at(begin + kStep).op_end(step + 1);
  }
  b.at(22 * kStep).end(train);
  b.clean_exit(23 * kStep);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

// 21 steps of 100 ms; in each prepare() runs for 70 ms without calling anything. `looks` says what is seen of it: it is
// called with the number of the step and three times, one each 20 ms, and returns a line of prepare(), from 1 on; 0:
// no look.
std::string advice(const std::function<uint32_t(uint64_t step, uint32_t look)>& looks, SampledWait wait,
                   const char* name = nullptr, uint32_t only_look = UINT32_MAX) {
  SpoolBuilder b;
  const FunctionId prepare = b.function("/home/u/train.py", 30, "prepare");
  const StringId what = name ? b.string(name) : StringId{};
  return advice_of(b, [&](uint64_t step, uint64_t begin) {
    for (uint32_t line = 1; step == 0 && line < kLines; ++line) b.seen(StackNode{{}, 1 + line, 1, prepare, 30 + line});
    b.at(begin + kMs).begin(prepare);
    for (uint32_t look = 0; look < 3; ++look) {
      const uint32_t line = looks(step, look);
      if (line == 0) continue;
      const bool waits = wait != SampledWait::kUnknown && (only_look == UINT32_MAX || only_look == look);
      b.at(begin + (22 + 20 * look) * kMs).seen(look_at(1 + line, waits ? wait : SampledWait::kUnknown, what));
    }
    b.at(begin + 71 * kMs).end(prepare);
    b.at(begin + 72 * kMs).op(50, "aten::mm").at(begin + 99 * kMs).op_end(50);
  });
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != text.npos; }

uint32_t mostly_second(uint64_t, uint32_t look) { return look == 2 ? 9 : 2; }

}  // namespace

TEST_CASE("a function's own Python has the line at which it was seen most") {
  const std::string text = advice(mostly_second, SampledWait::kUnknown);
  CAPTURE(text);
  CHECK(says(text, "\"python\",\"prepare takes 70.0 ms in Python code of its own.\""));
  CHECK(says(text, "\"/home/u/train.py(32): prepare\""));
}

TEST_CASE("of fewer than five looks no line is said, and no wait") {
  for (const uint64_t seen : {4, 5}) {
    // One look in each of the first steps after the first one, which is not looked at.
    const auto first = [seen](uint64_t step, uint32_t look) {
      return look == 0 && step >= 1 && step <= seen ? uint32_t{2} : uint32_t{0};
    };
    const std::string works = advice(first, SampledWait::kUnknown), waits = advice(first, SampledWait::kSleep);
    CAPTURE(works);
    CAPTURE(waits);
    CHECK(says(works, "/home/u/train.py(32): prepare") == (seen == 5));
    CHECK(says(waits, "prepare sleeps: 70.0 ms.") == (seen == 5));
    CHECK(says(waits, "Python code of its own") == (seen == 4));
  }
}

TEST_CASE("a wait is told by what it is for") {
  const auto with = [](SampledWait wait, const char* name = nullptr) { return advice(mostly_second, wait, name); };
  const std::string sleeps = with(SampledWait::kSleep);
  CAPTURE(sleeps);
  CHECK(says(sleeps, "\"waiting\",\"prepare sleeps: 70.0 ms.\""));
  CHECK(says(sleeps, "By 60 looks the thread ran 2.5 % of that time, and waited 97.5 % (sleep 97.5 %)."));
  CHECK(says(with(SampledWait::kSocket, "socket 10.0.0.7:443"), "prepare waits for socket 10.0.0.7:443: 70.0 ms."));
  CHECK(says(with(SampledWait::kDisk, "/data/log"), "prepare waits for the disk to have /data/log (fsync): 70.0 ms."));
  CHECK(says(with(SampledWait::kChild, "sleep 1"), "prepare waits for a process that it started: sleep 1: 70.0 ms."));
  CHECK(says(with(SampledWait::kLock), "prepare waits for a lock, a queue or another thread: 70.0 ms."));
  CHECK(!says(with(SampledWait::kLock), "Python code of its own"));
}

TEST_CASE("Python's lock is told once, wherever the thread waits for it") {
  const std::string all = advice(mostly_second, SampledWait::kGil);
  CAPTURE(all);
  CHECK(says(all, "prepare waits for Python's lock, the GIL: 70.0 ms."));
  CHECK(!says(all, "\"GIL\""));
  // A third of the looks.
  const std::string some = advice(mostly_second, SampledWait::kGil, nullptr, 1);
  CAPTURE(some);
  CHECK(says(some,
             "33333333,33.333333,66666667,\"GIL\",\"The thread that runs the program waits 33.3 ms for Python's lock"));
}

TEST_CASE("what waits for Python's lock is no cost of the operators after which it waits") {
  // Steps of 100 ms, of which an optimizer has 80: 40 operators of 50 us each, and between them nothing.
  const auto with = [](SampledWait wait) {
    SpoolBuilder b;
    const StringId holder = b.string("/home/u/train.py(30): count");
    return advice_of(b, [&](uint64_t, uint64_t begin) {
      b.at(begin + kMs).annotation(100, "Optimizer.step#SGD.step");
      for (uint64_t at = 2; at < 82; at += 2) {
        b.at(begin + at * kMs).op(50, "aten::add_").at(begin + at * kMs + 50'000).op_end(50);
        if (at % 20 != 0) continue;
        b.at(begin + (at + 1) * kMs).seen(look_at(1, wait, holder));
      }
      b.at(begin + 82 * kMs).op_end(100);
      b.at(begin + 83 * kMs).op(50, "aten::mm").at(begin + 99 * kMs).op_end(50);
    });
  };
  const std::string works = with(SampledWait::kUnknown), waits = with(SampledWait::kGil);
  CAPTURE(works);
  CAPTURE(waits);
  CHECK(says(works, "\"optimizer\",\"SGD updates 40 tensors one by one"));
  CHECK(says(waits, "\"GIL\",\"The thread that runs the program waits 100 ms for Python's lock"));
  CHECK(!says(waits, "\"optimizer\""));
}

}  // namespace sampled_advice_test
