#include "formats/replay/steps.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "formats/analysis/statistics.h"
#include "formats/replay/replay.h"
#include "formats/trace/name_role.h"
#include "tests/unit/support/spool_builder.h"

namespace steps_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// The marks that are made, in us: "0 10-20 Optimizer: SGD_0".
std::string marks(const SpoolBuilder& b) {
  const test::LoadedTrace trace(b);
  Replay replay(trace->processes.at(0));
  class MarkSink final : public Sink {
   public:
    explicit MarkSink(Names& names) : names_(names) {}
    void slice(const Slice&) override {}
    void step(const StepMark& m) override {
      text.append(std::to_string(m.number)).append(" ");
      text.append(std::to_string((m.begin.value - test::kStartNs) / 1000)).append("-");
      text.append(std::to_string((m.end.value - test::kStartNs) / 1000)).append(" ");
      text.append(m.ended_by ? names_.text(m.ended_by) : "rest").append("\n");
    }
    std::string text{"\n"};

   private:
    Names& names_;
  } sink(replay.names());
  replay.run(sink);
  return sink.text;
}

// A program in microseconds, on one thread.
class Program {
 public:
  Program() { b_.thread(100); }
  Program& call(const std::string& name) {
    open_.push_back(b_.function(name));
    b_.at(now_).begin(open_.back());
    return *this;
  }
  Program& module() {
    b_.at(now_).begin(module_, net_);
    b_.at(now_ += 1000).end(module_);
    return *this;
  }
  Program& step(ObjectId optimizer) {
    b_.at(now_).begin(step_, optimizer);
    b_.at(now_ += 1000).end(step_);
    return *this;
  }
  Program& returns() {
    b_.at(now_).end(open_.back());
    open_.pop_back();
    return *this;
  }
  Program& wait(uint64_t us) {
    now_ += us * 1000;
    return *this;
  }
  ObjectId optimizer(const char* name) { return b_.object(name, ObjectKind::kOptimizer); }
  std::string marks() {
    b_.clean_exit(now_);
    return steps_test::marks(b_);
  }
  Steps steps() {
    b_.clean_exit(now_);
    const test::LoadedTrace trace(b_);
    return statistics_of(trace->processes.at(0)).steps;
  }
  SpoolBuilder& builder() { return b_; }

 private:
  SpoolBuilder b_;
  FunctionId module_ = b_.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  FunctionId step_ = b_.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep);
  ObjectId net_ = b_.object("Net");
  std::vector<FunctionId> open_;
  uint64_t now_ = 1000;
};

}  // namespace

TEST_CASE(
    "a step ends with the statement of the loop, the first begins with the first work, the last mark is the rest") {
  Program p;
  const ObjectId sgd = p.optimizer("SGD");
  p.call("main").wait(100);
  for (int i = 0; i < 3; ++i) p.call("train_step").module().step(sgd).wait(1).returns().wait(1);
  p.wait(50).returns().wait(5);
  CHECK(p.marks() == R"(
0 101-104 Optimizer: SGD_0
1 104-108 Optimizer: SGD_0
2 108-112 Optimizer: SGD_0
3 112-163 rest
)");
}

TEST_CASE("what comes between two epochs belongs to no step") {
  Program p;
  const ObjectId sgd = p.optimizer("SGD");
  p.call("main");
  for (int epoch = 0; epoch < 2; ++epoch) {
    p.call("epoch");
    for (int i = 0; i < 2; ++i) p.module().step(sgd).wait(8);
    p.returns().call("validate").wait(100).returns();
  }
  p.returns();
  CHECK(p.marks() == R"(
0 1-3 Optimizer: SGD_0
1 3-13 Optimizer: SGD_0
2 121-123 Optimizer: SGD_0
3 123-133 Optimizer: SGD_0
4 133-141 rest
)");
}

TEST_CASE("two optimizers in one iteration are one step, which ends with the second") {
  Program p;
  const ObjectId one = p.optimizer("Adam"), two = p.optimizer("Adam");
  p.call("main");
  for (int i = 0; i < 3; ++i) p.module().step(one).module().step(two);
  p.returns();
  CHECK(p.marks() == R"(
0 1-5 Optimizer: Adam_0
1 5-9 Optimizer: Adam_0
2 9-13 Optimizer: Adam_0
3 13-13 rest
)");
}

TEST_CASE("an optimizer that follows another one goes on counting, and its first step is one of its own") {
  Program p;
  const ObjectId one = p.optimizer("Adam"), two = p.optimizer("SGD");
  p.call("main");
  for (int i = 0; i < 3; ++i) p.step(one);
  for (int i = 0; i < 3; ++i) p.call("train_step").wait(1).step(two).returns();
  p.returns();
  CHECK(p.marks() == R"(
0 1-2 Optimizer: Adam_0
1 2-3 Optimizer: Adam_0
2 3-4 Optimizer: Adam_0
3 4-6 Optimizer: SGD_0
4 6-8 Optimizer: SGD_0
5 8-10 Optimizer: SGD_0
6 10-10 rest
)");
  const Steps steps = p.steps();
  CHECK(steps.jumps == 0);
  CHECK(steps.count == 6);
}

TEST_CASE("an optimizer that steps seldom adds no steps") {
  Program p;
  const ObjectId often = p.optimizer("Adam"), seldom = p.optimizer("SGD");
  p.call("main");
  for (int i = 0; i < 10; ++i) {
    p.step(often);
    if (i % 5 == 0) p.step(seldom);
  }
  p.returns();
  CHECK(p.steps().count == 10);
}

TEST_CASE("a step inside a step of the same optimizer is none") {
  Program p;
  const ObjectId mine = p.optimizer("Mine");
  SpoolBuilder& b = p.builder();
  const FunctionId outer = b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep);
  p.call("main");
  for (uint64_t i = 0; i < 2; ++i) {
    b.at(10'000 * (i + 1)).begin(outer, mine);
    b.at(10'000 * (i + 1) + 1000).begin(FunctionId{2}, mine).at(10'000 * (i + 1) + 2000).end(FunctionId{2});
    b.at(10'000 * (i + 1) + 3000).end(outer);
  }
  p.wait(100);
  CHECK(p.steps().count == 2);
}

TEST_CASE("without Python the annotations of optimizers end steps") {
  SpoolBuilder b;
  b.thread(100);
  for (uint64_t t = 10'000; t <= 30'000; t += 10'000) {
    b.at(t).op(t, "aten::linear", {.sequence = 1}).at(t + 1000).op_end(t);
    b.at(t + 2000).annotation(t + 1, "Optimizer.step#SGD.step").at(t + 3000).op_end(t + 1);
  }
  b.thread_end();
  b.clean_exit(50'000);
  CHECK(marks(b) == R"(
0 10-13 Optimizer.step#SGD.step
1 13-23 Optimizer.step#SGD.step
2 23-33 Optimizer.step#SGD.step
3 33-33 rest
)");
}

TEST_CASE("a program that marks its steps gets no others, and the last mark is no step") {
  SpoolBuilder b;
  b.thread(100);
  uint64_t t = 1000, key = 0;
  for (const char* name : {"ProfilerStep#0", "ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#4", "ProfilerStep#5",
                           "ProfilerStep#0", "ProfilerStep#1"}) {
    b.at(t).annotation(++key, name).at(t + 100).annotation(99, "Optimizer.step#SGD.step").at(t + 200).op_end(99);
    b.at(t += 1000).op_end(key);
  }
  b.clean_exit(50'000);
  CHECK(marks(b) == "\n");
  const test::LoadedTrace trace(b);
  const Steps steps = statistics_of(trace->processes.at(0)).steps;
  CHECK(steps.count == 5);
  CHECK(steps.jumps == 1);
  CHECK(steps.ended_by == "ProfilerStep");
}

TEST_CASE(
    "torch.profiler's step ends steps where it annotates none, but for runs with windows, outside of which it is not "
    "seen") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId step = b.function("torch/profiler/profiler.py", 811, "step", 0, FunctionKind::kProfilerStep);
  const FunctionId optimizer = b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep);
  const ObjectId sgd = b.object("SGD", ObjectKind::kOptimizer);
  uint64_t steps = 2;
  SUBCASE("a whole run") {}
  SUBCASE("with windows") {
    b.window(1, 0, 5'000, 45'000, WindowReason::kStart);
    steps = 4;
  }
  uint64_t ended = 0;
  for (uint64_t t = 10'000; t <= 20'000; t += 10'000) {
    for (const uint64_t at : {t, t + 2000}) {
      b.at(at).begin(optimizer, sgd).at(at + 900).step_end(++ended, 1, 2);
      b.at(at + 1000).end(optimizer);
    }
    b.at(t + 4000).begin(step).at(t + 5000).end(step);
  }
  b.clean_exit(50'000);
  const test::LoadedTrace trace(b);
  const Steps found = statistics_of(trace->processes.at(0)).steps;
  CHECK(found.count == steps);
  CHECK(found.ended_by == (steps == 4 ? "Optimizer: SGD_0" : "torch/profiler/profiler.py(811): step"));
}

TEST_CASE("which marks of the program's own are steps is told by the calls of torch.profiler's step") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId main = b.function("train.py", 1, "main", 0);
  FunctionId step{};
  size_t expected = 6;  // all are the program's own
  SUBCASE("without such calls") {}
  SUBCASE("a mark that ends in no such call is the rest after the last step") {
    step = b.function("torch/profiler/profiler.py", 811, "step", 0, FunctionKind::kProfilerStep);
    expected = 4;
  }
  uint64_t t = 1000, key = 0;
  b.at(t).begin(main);
  for (int training = 0; training < 2; ++training) {
    for (int i = 0; i < 3; ++i) {
      b.at(t += 1000).annotation(++key, "ProfilerStep#" + std::to_string(i));
      t += 1000;
      if (step && i < 2) b.at(t).begin(step);
      b.at(t += 10).op_end(key);
      if (step && i < 2) b.at(t += 10).end(step);
    }
  }
  b.at(t += 1000).annotation(++key, "ProfilerStep#0");  // the program was killed in it
  b.clean_exit(t + 1000);
  const test::LoadedTrace trace(b);
  CHECK(statistics_of(trace->processes.at(0)).steps.count == expected);
}

TEST_CASE("steps are those whose ends the recorder has taken, whatever is seen of them, on any threads") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    SpoolBuilder b;
    const bool has_python = random() % 4 != 0;
    const FunctionId train = b.function("train.py", 1, "train", 0);
    const FunctionId wrapper =
        has_python ? b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep) : FunctionId{};
    const unsigned threads = 1 + random() % 2, optimizers = 1 + random() % 4;
    std::vector<ObjectId> objects;
    for (unsigned i = 0; i < optimizers; ++i) objects.push_back(b.object("Adam", ObjectKind::kOptimizer));
    std::vector<TrackId> tracks;
    for (unsigned i = 0; i < threads; ++i) tracks.push_back(b.thread(100 + i));
    std::vector<uint64_t> ends;
    uint64_t t = 1000, key = 0;
    for (int i = 0; i < 60; ++i) {
      b.on(tracks[random() % threads]);
      const bool has_call = has_python && random() % 2 == 0;
      if (has_call) b.at(t += 100 + random() % 100).begin(train);
      b.at(t += 100 + random() % 1000).op(++key, "aten::linear", {.sequence = 1});
      b.at(t += 200).op_end(key);
      if (has_python) b.at(t += 50).begin(wrapper, objects[random() % optimizers]);
      b.at(t += 50).annotation(++key, "Optimizer.step#Adam.step");
      b.at(t += 300).op_end(key);
      if (random() % 3 != 0) {  // of some optimizers' steps it says that they end none
        ends.push_back(t += 3);
        b.at(t).step_end(ends.size(), 0, 0);
      }
      if (has_python) b.at(t += 20).end(wrapper);
      if (has_call) b.at(t += 40).end(train);
    }
    b.clean_exit(t + 5000);
    const test::LoadedTrace trace(b);
    Replay replay(trace->processes.at(0));
    class MarkSink final : public Sink {
     public:
      void slice(const Slice&) override {}
      void step(const StepMark& m) override {
        if (m.ended_by) marks.push_back(m);
      }
      std::vector<StepMark> marks;
    } sink;
    replay.run(sink);
    REQUIRE(sink.marks.size() == ends.size());
    std::ranges::sort(sink.marks, {}, &StepMark::number);
    for (size_t i = 0; i < ends.size(); ++i) {
      const StepMark& m = sink.marks[i];
      CHECK(m.number == i);
      CHECK(m.begin <= m.end);
      // Without Python the recorder's time is that of the annotation's end or a little later.
      const int64_t end = test::kStartNs + static_cast<int64_t>(ends[i]);
      CHECK(m.end.value + 3 >= end);
      if (i + 1 < ends.size()) CHECK(m.end.value < test::kStartNs + static_cast<int64_t>(ends[i + 1]));
      if (i > 0) CHECK(m.begin >= sink.marks[i - 1].end);
    }
  }
}

TEST_CASE("steps count on from the number with which a window opens") {
  SpoolBuilder b;
  b.thread(100);
  b.window(1, 10, 5'000);
  b.window(1, 10, 5'000, 33'000);
  b.window(2, 20, 40'000);
  b.window(2, 20, 40'000, 63'000);
  for (uint64_t t = 10'000; t <= 60'000; t += 10'000) {
    b.at(t).op(t, "aten::linear", {.sequence = 1}).at(t + 1000).op_end(t);
    b.at(t + 2000).annotation(t + 1, "Optimizer.step#SGD.step").at(t + 2900).op_end(t + 1);
  }
  b.clean_exit(90'000);
  CHECK(marks(b) == R"(
10 5-12 Optimizer.step#SGD.step
11 12-22 Optimizer.step#SGD.step
12 22-32 Optimizer.step#SGD.step
13 32-33 rest
20 40-42 Optimizer.step#SGD.step
21 42-52 Optimizer.step#SGD.step
22 52-62 Optimizer.step#SGD.step
23 62-63 rest
)");
  const test::LoadedTrace trace(b);
  const Steps steps = statistics_of(trace->processes.at(0)).steps;
  CHECK(steps.count == 6);
  CHECK(steps.jumps == 0);
}

// What a loop does before it calls a module, as loading, belongs to the step: also where its window opened just then.
TEST_CASE("the first step of a window begins where the step before it ended") {
  SpoolBuilder b;
  const FunctionId main = b.function("main"), train = b.function("train_step"), load = b.function("load");
  b.thread(100);
  b.window(1, 10, 5'000);
  b.window(1, 10, 5'000, 90'000);
  // The window opens inside of the step before, whose call returns at 6.
  b.at(5'000).sync().at(5'000).frame(main).at(5'000).frame(train).at(6'000).end(train);
  for (uint64_t t = 7'000; t <= 60'000; t += 20'000) {
    b.at(t).begin(load).at(t + 8'000).end(load).at(t + 9'000).begin(train);
    b.at(t + 10'000).op(t, "aten::linear", {.sequence = 1}).at(t + 11'000).op_end(t);
    b.at(t + 12'000)
        .annotation(t + 1, "Optimizer.step#SGD.step")
        .at(t + 12'900)
        .op_end(t + 1)
        .at(t + 13'000)
        .end(train);
  }
  b.at(80'000).end(main);
  b.clean_exit(90'000);
  CHECK(marks(b) == R"(
10 6-20 Optimizer.step#SGD.step
11 20-40 Optimizer.step#SGD.step
12 40-60 Optimizer.step#SGD.step
13 60-80 rest
)");
}

TEST_CASE("numbers of marks") {
  CHECK(step_number("ProfilerStep#12") == 12);
  CHECK(step_number("ProfilerStep#") == std::nullopt);
  CHECK(step_number("ProfilerStep") == std::nullopt);
  CHECK(step_number("Optimizer.step#SGD.step") == std::nullopt);
}

TEST_CASE("a name has the role of what it begins with, and keeps the rest") {
  for (size_t i = 1; i < kNamePrefixes.size(); ++i) {
    const auto role = static_cast<NameRole>(i);
    const std::string prefix(prefix_of(role)), name = prefix + "a: #b";
    CHECK(role_of_name(name) == role);
    CHECK(role_of_name(prefix.substr(0, prefix.size() - 1)) == NameRole::kPlain);
    CHECK(role_of_name(" " + name) == NameRole::kPlain);
    CHECK(without_role(name, role) == "a: #b");
    CHECK(without_role(name, NameRole::kPlain) == name);
  }
  CHECK(role_of_name("") == NameRole::kPlain);
  CHECK(prefix_of(NameRole::kModule) == "nn.Module: ");
  CHECK(prefix_of(NameRole::kLoading) == "enumerate(DataLoader)#");
}

}  // namespace steps_test
