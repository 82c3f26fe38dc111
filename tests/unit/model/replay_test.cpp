#include "formats/replay/replay.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "formats/analysis/call_tree.h"
#include "formats/replay/thread_stack.h"
#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace replay_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// Each slice as "thread begin-end name", as it is drawn ("*": on a row of its own), a flow as "forward -> backward", in
// the order in which they come.
class TextSink final : public Sink {
 public:
  explicit TextSink(const Replay& replay, Names& names) : replay_(replay), names_(names) {}

  void slice(const Slice& s) override {
    const Row& row = replay_.rows()[s.row];
    text += std::to_string(row.sort_tid) + (row.is_overflow ? "* " : " ");
    text += std::to_string(s.drawn_begin.value - test::kStartNs) + "-";
    text += std::to_string(s.drawn_end.value - test::kStartNs) + " ";
    text += names_.text(s.name);
    if (!s.finished) text += " unfinished";
    if (s.preexisting) text += " preexisting";
    text += "\n";
    at_[{s.row, s.drawn_begin.value}] = names_.text(s.name);
    for (uint32_t i = 0; i < s.depth; ++i) REQUIRE(s.around[i].recorded_begin() <= s.begin.value);
    slices.push_back(s);
  }
  void step(const StepMark& m) override { steps.push_back(m); }
  void flow(const Flow& f) override {
    text += at_.at({f.from_row, f.from.value}) + " -> " + at_.at({f.to_row, f.to.value}) + "\n";
  }

  std::string text;
  std::vector<Slice> slices;
  std::vector<StepMark> steps;

 private:
  const Replay& replay_;
  Names& names_;
  std::map<std::pair<uint32_t, int64_t>, std::string> at_;
};

struct Replayed {
  explicit Replayed(const SpoolBuilder& b) : trace(b), replay(trace->processes.at(0)), sink(replay, replay.names()) {
    stats = replay.run(sink);
  }
  test::LoadedTrace trace;
  Replay replay;
  TextSink sink;
  ReplayStats stats;
};

std::string replayed(const SpoolBuilder& b) { return std::string("\n").append(Replayed(b).sink.text); }

// What every row of a trace must be, whatever was lost: slices nest, none ends before it begins, and what they took
// themselves adds up to the time in which any was open.
void check_nesting(const Replayed& r) {
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> rows;
  std::map<uint32_t, int64_t> own;
  std::map<uint32_t, std::map<int64_t, int64_t>> covered;  // end of the longest by begin
  for (const Slice& s : r.sink.slices) {
    REQUIRE(s.begin <= s.drawn_begin);
    REQUIRE(s.drawn_begin <= s.drawn_end);
    REQUIRE(s.drawn_end <= s.end);
    REQUIRE(s.self_ns >= 0);
    REQUIRE(s.self_ns <= s.end - s.begin);
    const Row& row = r.replay.rows()[s.row];
    rows[row.tid].emplace_back(s.drawn_begin.value, -s.drawn_end.value);
    own[row.tid] += s.own_ns;
    if (row.is_overflow) continue;
    int64_t& end = covered[row.tid][s.drawn_begin.value];
    end = std::max(end, s.drawn_end.value);
  }
  for (const StepMark& m : r.sink.steps) {
    REQUIRE(m.begin <= m.end);
    rows[r.replay.rows()[m.row].tid].emplace_back(m.begin.value, -m.end.value);
  }
  for (const auto& [tid, spans] : covered) {
    int64_t until = 0, sum = 0;
    for (const auto& [begin, end] : spans) {
      sum += std::max(end, until) - std::max(begin, until);
      until = std::max(end, until);
    }
    CHECK(own[tid] == sum);
  }
  for (auto& [tid, spans] : rows) {
    std::ranges::sort(spans);
    std::vector<int64_t> open;
    for (const auto& [begin, minus_end] : spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      REQUIRE((open.empty() || -minus_end <= open.back()));
      open.push_back(-minus_end);
    }
  }
}

}  // namespace

TEST_CASE("frames, C calls and operators nest on one stack") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.at(10).begin(f).at(20).begin(g).at(30).c_begin("<built-in len>").at(40).c_end();
  b.at(50).op(1, "aten::add").at(60).op_end(1).at(70).end(g).at(80).end(f);
  CHECK(replayed(b) == R"(
100 30-40 <built-in len>
100 50-60 aten::add
100 20-70 test.py(1): g
100 10-80 test.py(1): f
)");
}

TEST_CASE("an annotation opened in __enter__ and closed in __exit__ keeps its times, and these are drawn around it") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), enter = b.function("__enter__"), exit = b.function("__exit__");
  b.at(10).begin(f).at(20).begin(enter).at(22).c_begin("<enter>").at(25).annotation(1, "block").at(28).c_end();
  b.at(30).end(enter).at(40).op(2, "aten::add").at(50).op_end(2);
  b.at(60).begin(exit).at(65).op_end(1).at(70).end(exit).at(80).end(f);
  CHECK(replayed(b) == R"(
100 22-25 <enter>
100 20-25 test.py(1): __enter__
100 40-50 aten::add
100 25-65 block
100 65-70 test.py(1): __exit__
100 10-80 test.py(1): f
)");
  const Replayed r(b);
  const Slice &call = r.sink.slices[0], &enter_slice = r.sink.slices[1], &exit_slice = r.sink.slices[4];
  CHECK(call.self_ns == 6);
  CHECK(enter_slice.end - enter_slice.begin == 10);
  CHECK(enter_slice.self_ns == 4);
  CHECK(exit_slice.end - exit_slice.begin == 10);
  CHECK(exit_slice.self_ns == 10);
  CHECK(r.sink.slices[3].self_ns == 30);  // block
  CHECK(r.sink.slices[5].self_ns == 50);  // f
}

TEST_CASE("what begins a range for an __enter__ is drawn with it, whatever it is") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), enter = b.function("__enter__"), start = b.function("start");
  b.at(10).begin(f).at(20).begin(enter).at(21).begin(start).at(22).op(9, "dispatch").at(25).annotation(1, "block");
  b.at(26).op_end(9).at(27).end(start).at(28).c_begin("<tail>").at(29).c_end().at(30).end(enter);
  b.at(60).op_end(1).at(80).end(f);
  CHECK(replayed(b) == R"(
100 22-25 dispatch
100 21-25 test.py(1): start
100 28-29 <tail>
100 20-25 test.py(1): __enter__
100 25-60 block
100 10-80 test.py(1): f
)");
}

TEST_CASE("a range that outlives the function in which it began has a row of its own, and its times and sums") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId main = b.function("main"), start = b.function("start"), stop = b.function("stop");
  const FunctionId enter = b.function("__enter__"), exit = b.function("__exit__");
  b.at(10).begin(main).at(20).begin(start).at(22).begin(enter).at(25).annotation(1, "phase").at(28).end(enter);
  b.at(30).op(2, "aten::add").at(40).op_end(2).at(50).end(start).at(55).op(3, "aten::add").at(65).op_end(3);
  b.at(70).begin(stop).at(75).begin(exit).at(77).op_end(1).at(80).end(exit).at(85).end(stop).at(90).end(main);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 22-25 test.py(1): __enter__
100 30-40 aten::add
100 20-50 test.py(1): start
100 55-65 aten::add
100* 25-77 phase
100 75-80 test.py(1): __exit__
100 70-85 test.py(1): stop
100 10-90 test.py(1): main
)");
  CHECK(r.sink.slices[4].self_ns == 32);
  CHECK(r.sink.slices[2].self_ns == 24);
  check_nesting(r);
}

TEST_CASE("each row for what crosses is filled as far as ranges nest there") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f).annotation(1, "outer").at(11).annotation(2, "inner").at(12).annotation(3, "crossing").at(20).end(f);
  b.at(30).op_end(2).at(40).op_end(1).at(50).op_end(3).at(60).begin(f).annotation(4, "later").at(61).end(f).at(70);
  b.op_end(4);
  const Replayed r(b);
  CHECK(r.replay.rows().size() == 3);
  check_nesting(r);
}

TEST_CASE("of ranges with one name that cross, both are counted in full") {
  SpoolBuilder b;
  b.thread(100);
  b.at(10).annotation(1, "request").at(20).annotation(2, "request").at(30).op_end(1).at(40).op_end(2);
  const Replayed r(b);
  CHECK(r.sink.slices[0].outermost);
  CHECK(r.sink.slices[1].outermost);
  CHECK(r.sink.slices[0].self_ns == 10);
  CHECK(r.sink.slices[1].self_ns == 20);
}

TEST_CASE("nested blocks keep their order") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId enter = b.function("__enter__"), exit = b.function("__exit__");
  b.at(10).begin(enter).at(15).annotation(1, "outer").at(20).end(enter);
  b.at(30).begin(enter).at(35).annotation(2, "inner").at(40).end(enter);
  b.at(50).begin(exit).at(55).op_end(2).at(60).end(exit);
  b.at(70).begin(exit).at(75).op_end(1).at(80).end(exit);
  CHECK(replayed(b) == R"(
100 10-15 test.py(1): __enter__
100 30-35 test.py(1): __enter__
100 35-55 inner
100 55-60 test.py(1): __exit__
100 15-75 outer
100 75-80 test.py(1): __exit__
)");
}

TEST_CASE("annotations that cross keep their times, the later on a row of its own") {
  SpoolBuilder b;
  b.thread(100);
  b.at(10).annotation(1, "first").at(20).annotation(2, "second").at(25).op(3, "aten::add").at(26).op_end(3);
  b.at(30).op_end(1).at(40).op_end(2);
  b.at(50).annotation(4, "third").at(60).annotation(5, "fourth").at(70).op_end(4).at(80).op_end(5);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 25-26 aten::add
100 10-30 first
100* 20-40 second
100 50-70 third
100* 60-80 fourth
)");
  REQUIRE(r.replay.rows().size() == 2);  // both that cross fit on one row
  CHECK(r.replay.rows()[1].tid > (1u << 22));
}

TEST_CASE("an end below lost ones closes them, an end of nothing is ignored") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g"), h = b.function("h");
  b.at(5).end(h).op_end(77).c_end();
  b.at(10).begin(f).at(20).begin(g).at(30).c_begin("<c>").at(40).end(f);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 30-40 <c>
100 20-40 test.py(1): g
100 10-40 test.py(1): f
)");
  CHECK(r.stats.unmatched_ends == 3);
  CHECK(r.stats.lost_ends == 2);
}

TEST_CASE("the end of a C call ends no Python frame") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).c_begin("<c>").at(20).begin(f).at(30).c_end().at(40).end(f).at(50).c_end();
  CHECK(replayed(b) == R"(
100 20-40 test.py(1): f
100 10-50 <c>
)");
}

TEST_CASE("recursion ends the innermost frame of the function") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f).at(20).begin(f).at(30).end(f).at(40).end(f).at(50).begin(f).at(60).end(f);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 20-30 test.py(1): f
100 10-40 test.py(1): f
100 50-60 test.py(1): f
)");
  CHECK_FALSE(r.sink.slices[0].outermost);
  CHECK(r.sink.slices[1].outermost);
  CHECK(r.sink.slices[2].outermost);
  CHECK(r.sink.slices[1].self_ns == 20);
}

TEST_CASE("a restated stack closes what was open and marks what was there before") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.at(10)
      .frame(f)
      .at(10)
      .frame(g)
      .at(20)
      .annotation(1, "block")
      .at(30)
      .sync()
      .at(30)
      .frame(f)
      .at(40)
      .end(f)
      .at(50)
      .op_end(1);
  CHECK(replayed(b) == R"(
100 10-30 test.py(1): g preexisting
100 10-40 test.py(1): f preexisting
100* 20-50 block
)");
}

TEST_CASE("frames that are stated anew and were open stay open, the others end") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  const FunctionId main = b.function("main"), f = b.function("f"), g = b.function("g");
  b.on(t).at(10).begin(main).at(15).annotation(1, "step").at(20).begin(f).at(30).sync().at(31).frame(main).at(31);
  b.frame(g).at(40).end(g).at(50).op_end(1).at(60).end(main);
  CHECK(replayed(b) == R"(
100 20-30 test.py(1): f
100 31-40 test.py(1): g preexisting
100 15-50 step
100 10-60 test.py(1): main
)");
}

TEST_CASE("frames that are stated once a window is open are around the annotation that opened it") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  const FunctionId main = b.function("main"), enter = b.function("__enter__");
  b.on(t).at(10).annotation(1, "block").at(12).sync().frame(main).frame(enter).at(13).end(enter);
  b.at(20).op(2, "aten::add").at(30).op_end(2).at(50).op_end(1).at(60).end(main);
  CHECK(replayed(b) == R"(
100 10-10 test.py(1): __enter__ preexisting
100 20-30 aten::add
100 10-50 block
100 10-60 test.py(1): main preexisting
)");
}

TEST_CASE("frames that are stated in an operator are within it") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  const FunctionId f = b.function("f");
  b.on(t).at(10).op(1, "PyNode").at(12).sync().frame(f).at(30).end(f).at(50).op_end(1);
  CHECK(replayed(b) == R"(
100 12-30 test.py(1): f preexisting
100 10-50 PyNode
)");
}

TEST_CASE("a garbage collection holds what it runs") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  const FunctionId f = b.function("f"), finalizer = b.function("finalizer");
  b.on(t).at(10).begin(f).at(20).gc_begin(2).at(30).begin(finalizer).at(40).end(finalizer).at(50).gc_end(3, 1);
  b.at(60).end(f).at(70).gc_end(0, 0);
  const Replayed r(b);
  CHECK(r.sink.text == "100 30-40 test.py(1): finalizer\n100 20-50 Python GC\n100 10-60 test.py(1): f\n");
  CHECK(r.stats.unmatched_ends == 1);
}

TEST_CASE("a child that multiprocessing forked leaves its parent's frames, however often they are stated again") {
  for (const bool is_forked : {true, false}) {
    SpoolBuilder b;
    b.thread(100);
    if (is_forked) std::strcpy(b.header().forked_from, "parent.spool");
    const FunctionId train = b.function("train"), launch = b.function("_launch"), work = b.function("work");
    const FunctionId bootstrap =
        b.function("/usr/lib/python3.11/multiprocessing/process.py", 9, "_bootstrap", 20, FunctionKind::kWorker);
    b.at(10).sync().frame(train).frame(launch).at(20).begin(bootstrap).at(30).begin(work);
    b.at(40).sync().frame(train).frame(launch).frame(bootstrap).frame(work).at(50).end(work);
    b.at(60).sync().frame(train).frame(launch).frame(bootstrap).at(70).end(bootstrap).thread_end();
    CHECK(replayed(b) == (is_forked ? R"(
100 10-20 test.py(1): _launch preexisting
100 10-20 test.py(1): train preexisting
100 30-50 test.py(1): work
100 20-70 multiprocessing/process.py(9): _bootstrap
)"
                                    : R"(
100 30-50 test.py(1): work
100 20-70 multiprocessing/process.py(9): _bootstrap
100 10-70 test.py(1): _launch preexisting
100 10-70 test.py(1): train preexisting
)"));
  }
}

TEST_CASE("frames of the parent that are stated with those of a forked worker are not its own") {
  SpoolBuilder b;
  b.thread(100);
  std::strcpy(b.header().forked_from, "parent.spool");
  const FunctionId train = b.function("train"), work = b.function("work");
  const FunctionId bootstrap = b.function("multiprocessing/process.py", 9, "_bootstrap", 0, FunctionKind::kWorker);
  b.at(10).sync().frame(train).frame(bootstrap).frame(work).at(50).end(work).at(70).end(bootstrap);
  CHECK(replayed(b) ==
        "\n100 10-50 test.py(1): work preexisting\n"
        "100 10-70 multiprocessing/process.py(9): _bootstrap preexisting\n");
}

TEST_CASE("a thread that somebody else profiles shows for how long") {
  SpoolBuilder b;
  const TrackId t = b.thread(100), other = b.thread(101);
  const FunctionId f = b.function("f"), lost = b.function("lost");
  b.on(t).at(10).begin(f).at(15).begin(lost);
  b.on(other).at(20).blind(t, "torch.profiler");
  b.on(t).at(30).op(1, "aten::add").at(35).op_end(1);
  b.on(other).at(40).blind_end(t, "torch.profiler");
  b.on(t).at(50).sync().at(50).frame(f).at(60).end(f);
  CHECK(replayed(b) == R"(
100 30-35 aten::add
100 20-40 Python calls not recorded: torch.profiler
100 15-50 test.py(1): lost
100 10-60 test.py(1): f
)");
}

TEST_CASE("a thread that ends closes its spans, the end of the recording leaves them unfinished") {
  SpoolBuilder b;
  const TrackId main = b.thread(100), other = b.thread(101);
  const FunctionId f = b.function("f");
  b.on(other).at(10).begin(f).at(20).op(1, "aten::add").at(30).thread_end();
  b.on(main).at(15).begin(f).at(25).op(2, "aten::mul").at(90).c_begin("<c>").at(95).c_end();
  b.clean_exit(100);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
101 20-30 aten::add
101 10-30 test.py(1): f
100 90-95 <c>
100 25-100 aten::mul unfinished
100 15-100 test.py(1): f unfinished
)");
  CHECK(r.stats.unfinished == 2);
}

TEST_CASE("where the size limit stopped the recording, open spans end there") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f);
  b.header().stop_ticks = test::kStartTicks + 60;
  b.clean_exit(100);
  CHECK(replayed(b) == "\n100 10-60 test.py(1): f unfinished\n");
}

TEST_CASE("an operator may end on another thread") {
  SpoolBuilder b;
  const TrackId main = b.thread(100), other = b.thread(101);
  const FunctionId f = b.function("f");
  SUBCASE("where it is the innermost it stays on its row") {
    b.on(main).at(10).begin(f).at(20).op(1, "send");
    b.on(other).at(30).op_end(1);
    b.on(main).at(40).end(f);
    CHECK(replayed(b) == "\n100 20-30 send\n100 10-40 test.py(1): f\n");
  }
  SUBCASE("across what is open it goes to its own") {
    b.on(main).at(10).op(1, "send").at(20).begin(f);
    b.on(other).at(30).op_end(1);
    b.on(main).at(40).end(f);
    CHECK(replayed(b) == "\n100* 10-30 send\n100 20-40 test.py(1): f\n");
  }
  SUBCASE("one that says that it is asynchronous keeps its begin when its frame ends") {
    b.on(main).at(10).begin(f).at(20).op(1, "send", {.is_async = true}).at(30).end(f).thread_end();
    b.on(other).at(50).op_end(1);
    CHECK(replayed(b) == "\n100 10-30 test.py(1): f\n100* 20-50 send\n");
  }
}

TEST_CASE("a short end closes the innermost operator with its lowest bits, on its own thread only") {
  SpoolBuilder b;
  const TrackId main = b.thread(100), other = b.thread(101);
  constexpr uint64_t kHigh = uint64_t{1} << 20;
  b.on(main).at(10).op(5, "outer").at(20).op(kHigh + 5, "inner").at(30).short_record(kShortKindOf<OpEndHere>, 5);
  b.on(other).at(35).short_record(kShortKindOf<OpEndHere>, 5);
  b.on(main).at(40).short_record(kShortKindOf<OpEndHere>, 5).at(50).short_record(kShortKindOf<OpEndHere>, 5);
  const Replayed r(b);
  CHECK(r.sink.text == "100 20-30 inner\n100 10-40 outer\n");
  CHECK(r.stats.unmatched_ends == 2);
}

TEST_CASE("a thread id that comes again ends what its last owner left open") {
  SpoolBuilder b;
  const TrackId first = b.thread(100), second = b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(first).at(10).begin(f);
  b.on(second).at(50).begin(g).at(60).end(g);
  CHECK(replayed(b) == "\n100 10-50 test.py(1): f\n100 50-60 test.py(1): g\n");
}

TEST_CASE("names: the import prefix is cut, objects are numbered within their class") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("/usr/lib/python3/torch/nn/x.py", 12, "forward", 17);
  const ObjectId linear0 = b.object("Linear"), relu = b.object("ReLU"), linear1 = b.object("Linear"),
                 adam = b.object("AdamW", ObjectKind::kOptimizer);
  for (const ObjectId o : {linear1, relu, linear0, adam, ObjectId{}, ObjectId{99}}) b.at(10).begin(f, o).end(f);
  b.begin(FunctionId{50}).end(FunctionId{50});
  CHECK(replayed(b) == R"(
100 10-10 nn.Module: Linear_1
100 10-10 nn.Module: ReLU_0
100 10-10 nn.Module: Linear_0
100 10-10 Optimizer: AdamW_0
100 10-10 torch/nn/x.py(12): forward
100 10-10 torch/nn/x.py(12): forward
100 10-10 <unknown function>
)");
}

TEST_CASE("a forward operator flows to its backward, once, the latest of those with the number") {
  SpoolBuilder b;
  const TrackId main = b.thread(100, "python3", 1), engine = b.thread(101, "engine", 2);
  b.on(main).at(10).op(1, "aten::linear", {.sequence = 5}).at(20).op(2, "aten::addmm", {.sequence = 5});
  b.at(30).op_end(2).at(40).op_end(1);
  b.at(41).op(6, "aten::relu", {.sequence = 6}).at(42).op_end(6);
  b.on(engine).at(50).op(3, "autograd::engine::evaluate_function: AddmmBackward0");
  b.at(60).op(4, "AddmmBackward0", {.scope = OpScope::kBackwardFunction, .sequence = 5, .fwd_thread = 1});
  b.at(70).op_end(4).at(80).op_end(3).at(90).op(5, "again", {.sequence = 5, .fwd_thread = 1}).at(91).op_end(5);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 20-30 aten::addmm
100 10-40 aten::linear
100 41-42 aten::relu
101 60-70 AddmmBackward0
aten::addmm -> AddmmBackward0
101 50-80 autograd::engine::evaluate_function: AddmmBackward0
101 90-91 again
)");
  CHECK(r.sink.slices[4].sequence == 5);  // taken over from the backward operator that follows in it
  CHECK(r.sink.slices[4].fwd_thread == 1);
}

TEST_CASE("self times leave out direct children of the same kind only") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.at(0)
      .op(1, "outer")
      .at(10)
      .begin(f)
      .at(20)
      .op(2, "inner")
      .at(25)
      .begin(g)
      .at(30)
      .end(g)
      .at(50)
      .op_end(2)
      .at(60)
      .end(f);
  b.at(100).op_end(1);
  const Replayed r(b);
  std::vector<int64_t> selves;
  for (const Slice& s : r.sink.slices) selves.push_back(s.self_ns);
  CHECK(selves == std::vector<int64_t>{5, 30, 45, 70});  // g, inner, f, outer
}

TEST_CASE("ids are given in the order of begins, parents are Python frames") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.at(1).begin(f).op(1, "a").begin(g).end(g).op_end(1).end(f);
  const Replayed r(b);
  const auto& s = r.sink.slices;
  CHECK(s[0].python_id == 2);
  CHECK(s[0].python_parent == 1);
  CHECK(s[1].external_id == 1);
  CHECK(s[2].python_parent == 0);
  CHECK(r.stats.python_ids == 2);
  CHECK(r.stats.external_ids == 1);
}

TEST_CASE("whatever is lost, every row nests") {
  std::mt19937_64 random(99);
  for (int variant = 0; variant < 400; ++variant) {
    SpoolBuilder b;
    const TrackId tracks[] = {b.thread(100, "a", 1), b.thread(101, "b", 2), b.thread(100, "c", 3)};
    // Two optimizers in most variants: the marks of their steps have to nest as well, wherever those end.
    const FunctionKind kind = variant % 4 < 2 ? FunctionKind::kOptimizerStep : FunctionKind::kFunction;
    const FunctionId functions[] = {b.function("f"), b.function("g"), b.function("x.py", 1, "step", 0, kind)};
    const ObjectId optimizers[] = {b.object("A", ObjectKind::kOptimizer), b.object("B", ObjectKind::kOptimizer)};
    const char* const annotation = variant % 4 == 2 ? "Optimizer.step#A.step" : "note";
    uint64_t key = 0;
    for (uint64_t t = 1; t < 250; ++t) {
      b.on(tracks[random() % 3]).at(t / 2);  // times coincide
      const FunctionId f = functions[random() % 3];
      switch (random() % 10) {
        case 0:
        case 1:
          b.begin(f, f.value == functions[2].value ? optimizers[random() % 2] : ObjectId{});
          break;
        case 2:
        case 3:
          b.end(f);
          break;
        case 4:
          b.c_begin("<c>");
          break;
        case 5:
          b.c_end();
          break;
        case 6:
          if (random() % 3 == 0) {
            b.annotation(++key, annotation);
            break;
          }
          b.op(++key, "op", {.sequence = static_cast<int64_t>(random() % 9) - 1, .is_async = random() % 8 == 0});
          break;
        case 7:
          b.op_end(key - random() % 4);
          break;
        case 8:
          b.op(++key, "back", {.sequence = static_cast<int64_t>(random() % 8), .fwd_thread = 1 + random() % 3});
          break;
        default:
          random() % 6 == 0 ? b.thread_end() : random() % 3 == 0 ? b.sync() : b.frame(f);
      }
    }
    check_nesting(Replayed(b));
  }
}

// Times and self times of a random program, worked out moment by moment.
struct Expected {
  std::string name;
  int64_t begin = 0, end = 0, self = 0;
  auto operator<=>(const Expected&) const = default;
};

// Functions, C calls and operators nest; ranges begin and end anywhere.
std::vector<Expected> random_program(SpoolBuilder& b, std::mt19937_64& random) {
  struct Open {
    size_t index;
    uint64_t key;  // 0: a function or C call
    FunctionId function;
    bool is_range;
  };
  const FunctionId functions[] = {b.function("f"), b.function("__enter__"), b.function("__exit__")};
  const char* const names[] = {"test.py(1): f", "test.py(1): __enter__", "test.py(1): __exit__"};
  std::vector<Expected> all;
  std::vector<Open> open;
  uint64_t key = 0;
  int64_t t = 10;
  const auto pass = [&](int64_t until) {
    for (const bool is_op : {false, true})
      for (size_t i = open.size(); i-- > 0;)
        if ((open[i].key != 0) == is_op) {
          all[open[i].index].self += until - t;
          break;
        }
    t = until;
    b.at(static_cast<uint64_t>(t));
  };
  const auto end = [&](size_t i) {
    all[open[i].index].end = t;
    if (open[i].key != 0)
      b.op_end(open[i].key);
    else if (open[i].function)
      b.end(open[i].function);
    else
      b.c_end();
    open.erase(open.begin() + static_cast<ptrdiff_t>(i));
  };
  for (int step = 0; step < 60; ++step) {
    pass(t + 1 + static_cast<int64_t>(random() % 20));
    const size_t f = random() % 3, any = open.empty() ? 0 : random() % open.size();
    const size_t kind = random() % 8;
    if (kind >= 5 && !open.empty()) {
      size_t i = any;  // a range, or else the innermost of what nests
      if (!open[i].is_range)
        for (i = open.size() - 1; open[i].is_range;) --i;
      end(i);
      continue;
    }
    Open it{all.size(), kind < 3 ? 0 : ++key, {}, kind == 3};
    if (kind < 2) it.function = functions[f];
    all.push_back({kind < 2 ? names[f] : kind == 2 ? "<c>" : kind == 3 ? "range" : "op", t});
    kind < 2    ? b.begin(functions[f])
    : kind == 2 ? b.c_begin("<c>")
    : kind == 3 ? b.annotation(key, "range")
                : b.op(key, "op");
    open.push_back(it);
  }
  while (!open.empty()) {
    pass(t + 1);
    size_t i = open.size() - 1;
    if (random() % 2 == 0)
      for (size_t k = 0; k < open.size(); ++k)
        if (open[k].is_range) i = k;
    end(i);
  }
  std::ranges::sort(all);
  return all;
}

TEST_CASE("whatever crosses, each range has its recorded times, and sums are those of the recorded times") {
  std::mt19937_64 random(7);
  for (int variant = 0; variant < 400; ++variant) {
    CAPTURE(variant);
    SpoolBuilder b;
    b.thread(100);
    const std::vector<Expected> expected = random_program(b, random);
    Replayed r(b);
    std::vector<Expected> seen;
    for (const Slice& s : r.sink.slices) {
      const bool is_cut = s.drawn_begin != s.begin || s.drawn_end != s.end;
      CHECK_FALSE((is_cut && is_annotation(s.scope)));
      seen.push_back({std::string(r.replay.names().text(s.name)), s.begin.value - test::kStartNs,
                      s.end.value - test::kStartNs, s.self_ns});
    }
    std::ranges::sort(seen);
    REQUIRE(seen.size() == expected.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      CAPTURE(seen[i].name);
      CHECK(seen[i].begin == expected[i].begin);
      CHECK(seen[i].end == expected[i].end);
      CHECK(seen[i].self == expected[i].self);
    }
    check_nesting(r);
  }
}

TEST_CASE("a chunk whose predecessors are there says nothing new at its beginning") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  b.on(b.thread(7)).at(10).begin(f).at(20).op(1, "aten::add");
  b.next_chunk(0, {10, 20}).frame(f).op(1, "aten::add");
  b.at(30).op_end(1).at(40).end(f);
  CHECK(replayed(b) == "\n7 20-30 aten::add\n7 10-40 test.py(1): f\n");
}

TEST_CASE("where chunks are gone the stack is what the next one says") {
  SpoolBuilder b;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(b.thread(7)).at(10).begin(f).at(20).begin(g);
  b.at(50).next_chunk(3, {10, 40}).frame(f).op(1, "aten::add");
  b.at(60).op_end(1).at(70).end(f);
  // f began before the gap and ended after it: it is shown up to the gap and from there on.
  CHECK(replayed(b) == "\n7 20-20 test.py(1): g\n7 10-20 test.py(1): f\n7 40-60 aten::add\n7 20-70 test.py(1): f\n");
}

TEST_CASE("a track whose first chunks are gone begins when its open spans began") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  b.on(b.thread(7)).at(50).next_chunk(9, {10, 20}).frame(f).annotation(5, "epoch");
  b.at(60).op_end(5).at(70).end(f);
  CHECK(replayed(b) == "\n7 20-60 epoch\n7 10-70 test.py(1): f\n");
}

TEST_CASE("what is open when a window closes ends there, what comes between windows is ignored") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g");
  b.window(1, 0, 100);
  b.window(1, 0, 100, 200);
  b.window(2, 0, 300);
  b.window(2, 0, 300, 400);
  b.at(110).frame(f).at(120).begin(g).at(130).op(1, "aten::add").at(205).op_end(1).end(g).at(210).begin(g);
  b.at(310).sync().frame(f).at(320).op(2, "aten::mul").at(330).op_end(2).at(390).begin(g).at(410).end(g);
  b.clean_exit(1000);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 130-200 aten::add unfinished
100 120-200 test.py(1): g unfinished
100 110-200 test.py(1): f unfinished preexisting
100 320-330 aten::mul
100 390-400 test.py(1): g unfinished
100 310-400 test.py(1): f unfinished preexisting
)");
  CHECK(r.stats.unfinished == 0);
  CHECK(r.stats.unmatched_ends == 0);
}

TEST_CASE("a window that was never closed lasts to the end, and what is open then is counted") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.window(1, 7, 100);
  b.at(50).begin(f).at(110).begin(f);
  b.clean_exit(500);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 110-500 test.py(1): f unfinished
)");
  CHECK(r.stats.unfinished == 1);
}

TEST_CASE("stacks that were stated in the window of a hang are open in it, also of threads without an event") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  b.thread(101);
  const FunctionId main = b.function("main"), waits = b.function("waits"), runs = b.function("runs");
  b.window(1, 0, 10);
  b.window(1, 0, 10, 50);
  b.window(2, 0, 100);
  b.on(t).at(20).sync().frame(main).at(40).begin(runs);
  b.at(102).thread_stack(100, {{waits, 8}, {main, 3}}).thread_stack(101, {{waits, 8}});
  b.at(103).thread_stack(102, {{waits, 9}, {runs, 4}});
  b.clean_exit(400);
  const Replayed r(b);
  CHECK(std::string("\n").append(r.sink.text) == R"(
100 40-50 test.py(1): runs unfinished
100 20-50 test.py(1): main unfinished preexisting
100 100-400 test.py(1): waits unfinished preexisting
100 100-400 test.py(1): main unfinished preexisting
101 100-400 test.py(1): waits unfinished preexisting
102 100-400 test.py(1): waits unfinished preexisting
102 100-400 test.py(1): runs unfinished preexisting
)");
  CHECK(r.stats.unfinished == 5);
}

TEST_CASE(
    "a stack that was stated after the thread's own events adds nothing to them, nor one of a window that closed") {
  for (const bool is_closed : {false, true}) {
    SpoolBuilder b;
    const TrackId t = b.thread(100);
    const FunctionId main = b.function("main"), waits = b.function("waits");
    b.window(1, 0, 100);
    if (is_closed) b.window(1, 0, 100, 350);
    if (!is_closed) b.on(t).at(101).sync().frame(main).at(103).begin(waits);
    b.at(102).thread_stack(100, {{waits, 8}, {main, 3}}).at(200).thread_stack(100, {{waits, 8}, {main, 3}});
    b.clean_exit(400);
    CHECK(replayed(b) == (is_closed ? "\n" : R"(
100 103-400 test.py(1): waits unfinished
100 101-400 test.py(1): main unfinished preexisting
)"));
  }
}

TEST_CASE("a call of a module that was stated is what the thread itself says of it later") {
  SpoolBuilder b;
  const TrackId t = b.thread(100);
  const FunctionId main = b.function("main"), waits = b.function("waits");
  const FunctionId call = b.function("module.py", 7, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId again = b.function("module.py", 7, "_call_impl");  // our thread's own definition
  const ObjectId layer = b.object("Linear");
  b.window(1, 0, 100);
  b.at(102).thread_stack(100, {{waits, 8}, {again, 9}, {main, 3}});
  b.on(t).at(300).sync().frame(main).frame(call, layer).at(310).end(call).at(320).end(main);
  b.clean_exit(400);
  CHECK(replayed(b) == R"(
100 100-300 test.py(1): waits preexisting
100 100-310 nn.Module: Linear_0 preexisting
100 100-320 test.py(1): main preexisting
)");
}

TEST_CASE("frames that were stated stand once, wherever the thread has gone when it states them itself") {
  std::mt19937 random(11);
  for (int variant = 0; variant < 300; ++variant) {
    SpoolBuilder b;
    const TrackId t = b.thread(100);
    const FunctionId functions[] = {b.function("f"), b.function("g"), b.function("h")};
    const auto grow = [&](std::vector<FunctionId> stack) {
      while (random() % 4 != 0) stack.push_back(functions[random() % 3]);
      return stack;
    };
    const std::vector<FunctionId> before = grow({functions[0]});
    auto after = before;
    after.resize(1 + random() % before.size());
    const size_t left = after.size();
    after = grow(after);
    size_t kept = left;  // the thread may have called again what it had left
    while (kept < std::min(before.size(), after.size()) && before[kept] == after[kept]) ++kept;
    b.window(1, 0, 100);
    std::vector<StackFrame> stated;
    for (const FunctionId f : before) stated.insert(stated.begin(), {f, 1});
    b.at(101).thread_stack(100, stated);
    b.on(t).at(200).sync();
    for (const FunctionId f : after) b.frame(f);
    b.clean_exit(300);
    const Replayed r(b);
    check_nesting(r);
    size_t count[3] = {};  // of those that end when the thread states its stack, begin then, and are there all the time
    for (const Slice& s : r.sink.slices)
      ++count[s.end.value - test::kStartNs == 200 ? 0 : s.begin.value - test::kStartNs == 200 ? 1 : 2];
    CHECK(count[0] == before.size() - kept);
    CHECK(count[1] == after.size() - kept);
    CHECK(count[2] == kept);
  }
}

TEST_CASE("windows that overlap, end before they begin or lie outside of the process are put right") {
  std::mt19937_64 random(3);
  for (int variant = 0; variant < 200; ++variant) {
    SpoolBuilder b;
    b.thread(100);
    const FunctionId f = b.function("f");
    for (uint32_t number = 1; number < 5; ++number) b.window(number, random() % 9, random() % 2000, random() % 2000);
    for (uint64_t t = 0; t < 1000; t += 50) b.at(t).begin(f).at(t + 20).op(t + 1, "aten::add").at(t + 30).op_end(t + 1);
    b.clean_exit(1000);
    const Replayed r(b);
    check_nesting(r);
    for (const Slice& s : r.sink.slices) CHECK(s.end.value <= test::kStartNs + 1000);
  }
}

TEST_CASE("sinks that share a replay are given what each is given alone, and told once that it is over") {
  class EndSink final : public Sink {
   public:
    explicit EndSink(Names& names) : names_(names) {}
    // One that adds names of its own.
    void slice(const Slice&) override { names_.intern("name " + std::to_string(++slices)); }
    void end() override { ++ends; }
    size_t slices = 0, ends = 0;

   private:
    Names& names_;
  };
  SpoolBuilder b;
  test::train(b, 100);
  const Replayed alone(b);
  const test::LoadedTrace trace(b);
  Replay replay(trace->processes.at(0));
  EndSink before(replay.names()), after(replay.names());
  TextSink shared(replay, replay.names());
  replay.add(before);
  replay.add(shared);
  CallTree tree(trace->processes.at(0), replay);
  replay.add(after);
  replay.run();
  CHECK(shared.text == alone.sink.text);
  CHECK(shared.steps.size() == alone.sink.steps.size());
  CHECK(std::pair(before.slices, before.ends) == std::pair(shared.slices.size(), size_t{1}));
  CHECK(std::pair(after.slices, after.ends) == std::pair(shared.slices.size(), size_t{1}));

  // Names that come later are not the tree's.
  const size_t names = tree.names();
  replay.names().intern("later");
  CHECK(tree.names() == names);
  std::string paths;
  tree.each_path(tree.threads().at(0), [&](const std::vector<NameId>& path, const CallTree::Node&) {
    for (const NameId name : path) paths.append("/").append(tree.text(name));
    paths.append("\n");
  });
  CHECK(paths.find("/nn.Module: Linear_0/aten::linear\n") != paths.npos);
}

}  // namespace replay_test
