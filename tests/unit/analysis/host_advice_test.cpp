// Which findings about the program's own threads are made; tests/e2e/files/test_planted.py plants them in programs.
#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/advice/spread.h"
#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace host_advice_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

constexpr uint64_t kStep = 10'000'000;

// Four steps of 10 ms in train() of a program; `fill` says what happens in each, from `begin` on.
std::string advice(
    const std::function<void(SpoolBuilder&, uint64_t begin)>& fill,
    const std::function<void(SpoolBuilder&)>& prepare = [](SpoolBuilder&) {}) {
  SpoolBuilder b;
  prepare(b);
  const FunctionId train = b.function("/home/u/train.py", 12, "train");
  b.on(b.thread(100)).at(1000).begin(train);
  for (uint64_t step = 0; step < 4; ++step) {
    const uint64_t begin = 1'000'000 + step * kStep;
    b.at(begin).annotation(step + 1, std::string("ProfilerStep#").append(std::to_string(step)));
    fill(b, begin);
    b.at(begin + kStep).op_end(step + 1);
  }
  b.at(60'000'000).end(train);
  b.clean_exit(61'000'000);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != text.npos; }

void run(SpoolBuilder& b, uint64_t begin, uint64_t ns, const char* name) {
  b.at(begin).op(50, name).at(begin + ns).op_end(50);
}

}  // namespace

TEST_CASE("what keeps its share is steady, however long all of a step takes; what comes and goes is not") {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<StepSpan> steps;
    std::vector<int64_t> keeps, comes;
    int64_t at = 0;
    for (uint64_t i = 0; i < 16; ++i) {
      // The machine is busy with something else in the second half.
      const int64_t ns = static_cast<int64_t>(1000 + random() % 200) * (i < 8 ? 1 : 5);
      steps.push_back({at, at + ns, i});
      at += ns;
      keeps.push_back(ns / 3);
      comes.push_back(i < 8 ? ns / 10 : ns / 3);
    }
    CHECK_FALSE(is_unsteady(keeps, steps));
    CHECK(is_unsteady(comes, steps));
  }
}

TEST_CASE("products on fewer threads than cores are named with what more would give") {
  const auto with = [](const char* threads, const char* processors) {
    return advice([](SpoolBuilder& b, uint64_t begin) { run(b, begin + 1000, 8'000'000, "aten::mm"); },
                  [=](SpoolBuilder& b) {
                    b.meta("torch.threads", threads);
                    b.meta("processors", processors);
                  });
  };
  const std::string text = with("1", "16");
  CAPTURE(text);
  CHECK(says(text, "7000000,70,3000000,\"threads\""));  // 8 ms on 1 of 8 cores
  CHECK(says(text, "\"/home/u/train.py(12): train\""));
  CHECK(!says(with("8", "16"), "\"threads\""));
  CHECK(!says(with("1", "2"), "\"threads\""));  // of one core, maybe
  CHECK(!says(with("many", "16"), "\"threads\""));
}

TEST_CASE("the garbage collector, a compiler and waits are named by what they take") {
  const std::string collects = advice(
      [](SpoolBuilder& b, uint64_t begin) { b.at(begin + 1000).gc_begin(2).at(begin + 2'001'000).gc_end(5, 0); });
  CAPTURE(collects);
  CHECK(says(collects,
             "2000000,20,8000000,\"collecting\",\"Python's garbage collector takes 2.00 ms.\",\"It runs 1 time.\""));
  const std::string compiles = advice([](SpoolBuilder& b, uint64_t begin) {
    const FunctionId compiler =
        b.function("/usr/lib/python3/dist-packages/torch/_dynamo/convert_frame.py", 9, "_compile");
    b.at(begin + 1000).begin(compiler).at(begin + 3'001'000).end(compiler);
  });
  CAPTURE(compiles);
  CHECK(says(compiles, "3000000,30,7000000,\"compiling\""));
  const std::string waits = advice([](SpoolBuilder& b, uint64_t begin) {
    const FunctionId wait = b.function("/usr/lib/python3.11/threading.py", 288, "wait");
    b.at(begin + 1000).begin(wait).at(begin + 4'001'000).end(wait);
  });
  CAPTURE(waits);
  CHECK(
      says(waits, "4000000,40,6000000,\"waiting\",\"train waits for another thread or process, or sleeps: 4.00 ms.\""));
  CHECK(!says(waits, "threading.py"));  // nobody can change it
}

TEST_CASE("many short operators of one place are one finding, with the Python between them") {
  const auto with = [](uint64_t count, uint64_t ns) {
    return advice([=](SpoolBuilder& b, uint64_t begin) {
      const FunctionId loop = b.function("/home/u/train.py", 30, "normalise");
      b.at(begin + 1000).begin(loop);
      for (uint64_t i = 0; i < count; ++i)
        run(b, begin + 2000 + i * (ns + 1000), ns, i % 2 ? "aten::add" : "aten::mul");
      b.at(begin + 2000 + count * (ns + 1000)).end(loop);
    });
  };
  const std::string text = with(1000, 2000);
  CAPTURE(text);
  CHECK(says(text, "\"tiny operators\""));
  CHECK(says(text, "train.py(30): normalise"));
  CHECK(!says(with(50, 2000), "\"tiny operators\""));
  CHECK(!says(with(200, 40'000), "\"tiny operators\""));
}

}  // namespace host_advice_test
