// The lines of the program from which spans came, out of PythonLine records.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "formats/replay/replay.h"
#include "formats/timeline/build.h"
#include "tests/unit/support/gpu_program.h"

namespace lines_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// The line of each slice, by its name; several of one name with a space between. "-": not known.
std::map<std::string, std::string> lines_of(const SpoolBuilder& b) {
  struct Lines : Sink {
    explicit Lines(const Process& process) : replay(process) { replay.run(*this); }
    void slice(const Slice& s) override {
      std::string& lines = of[std::string(replay.names().text(s.name))];
      if (!lines.empty()) lines += " ";
      lines += s.line ? replay.names().text(s.line) : "-";
    }
    std::map<std::string, std::string> of;
    Replay replay;
  };
  const test::LoadedTrace trace(b);
  return Lines(trace->processes[0]).of;
}

// Functions f and g of the program in test.py, whose instruction N has line 10 + N, and one of a library.
struct Program {
  Program() {
    b.on(main);
    for (const FunctionId function : {f, g}) {
      std::vector<std::pair<uint32_t, uint32_t>> rows;
      for (uint32_t i = 0; i < 50; ++i) rows.emplace_back(1, 10 + i);
      b.lines(function, rows);
    }
  }
  SpoolBuilder b;
  TrackId main = b.thread(100, "main", 1);
  FunctionId f = b.function("f"), g = b.function("g");
  FunctionId library = b.function("/usr/lib/python3/dist-packages/torch/nn/functional.py", 7, "relu", 31);
};

const std::string kLibrary = "torch/nn/functional.py(7): relu";

}  // namespace

TEST_CASE("an operator has the line of the innermost function of the program, through libraries and operators") {
  Program p;
  p.b.at(100).begin(p.f).line(p.f, 1).op(1, "own").op(2, "inside").op_end(2).op_end(1);
  p.b.at(200).op(3, "same").op_end(3);  // nothing is said where nothing has changed
  p.b.line(p.f, 2).begin(p.library).op(4, "of library").op_end(4).begin(p.library).op(5, "deeper").op_end(5);
  p.b.end(p.library).end(p.library);
  p.b.line(p.f, 3).begin(p.g).line(p.g, 30).op(6, "of g").op_end(6).begin(p.library).begin(p.g);
  p.b.line(p.g, 32).op(7, "of inner g").op_end(7).end(p.g).op(8, "library again").op_end(8).end(p.library);
  p.b.line(p.g, 33).op(9, "g again").op_end(9).end(p.g).line(p.f, 4).op(10, "f again").op_end(10).end(p.f);
  p.b.op(11, "outside").op_end(11).clean_exit(10'000);
  const auto lines = lines_of(p.b);
  CHECK(lines.at("own") == "test.py(11): f");
  CHECK(lines.at("inside") == "test.py(11): f");
  CHECK(lines.at("same") == "test.py(11): f");
  CHECK(lines.at("of library") == "test.py(12): f");
  CHECK(lines.at("deeper") == "test.py(12): f");
  CHECK(lines.at("of g") == "test.py(40): g");
  CHECK(lines.at("of inner g") == "test.py(42): g");
  CHECK(lines.at("library again") == "test.py(40): g");
  CHECK(lines.at("g again") == "test.py(43): g");
  CHECK(lines.at("f again") == "test.py(14): f");
  CHECK(lines.at("outside") == "-");
  CHECK(lines.at(kLibrary) == "test.py(12): f test.py(12): f test.py(40): g");  // in the order of their ends
  CHECK(lines.at("test.py(1): g") == "test.py(40): g test.py(13): f");
  CHECK(lines.at("test.py(1): f") == "-");
}

TEST_CASE("a place that is not told, or is another function's, is not known") {
  Program p;
  const CallSiteId site = p.b.call_site("len", p.f, 44);
  p.b.at(100).begin(p.f).op(1, "before").op_end(1).line(p.f, 1).op(2, "told").op_end(2);
  p.b.at(200).c_begin("max").op(3, "in a C call").op_end(3).c_end().c_begin(site).c_end();
  p.b.op(4, "nvtx", {.scope = OpScope::kNvtx}).op_end(4);
  p.b.begin(p.g).op(5, "of g").op_end(5).end(p.g).line({}, 0).op(6, "taken back").op_end(6);
  p.b.line(p.f, 99).op(7, "beyond the end").op_end(7).line({77}, 1).op(8, "unknown function").op_end(8);
  p.b.line(p.f, 5).blind(p.main, "cProfile").op(9, "blind").op_end(9).blind_end(p.main, "cProfile");
  p.b.next_chunk(1, {100}).frame(p.f).op(10, "after a gap").op_end(10).line(p.f, 6).op(11, "told again").op_end(11);
  p.b.clean_exit(10'000);
  const auto lines = lines_of(p.b);
  CHECK(lines.at("before") == "-");
  CHECK(lines.at("told") == "test.py(11): f");
  CHECK(lines.at("max") == "-");
  CHECK(lines.at("in a C call") == "test.py(11): f");
  CHECK(lines.at("len") == "test.py(44): f");
  CHECK(lines.at("nvtx") == "-");
  CHECK(lines.at("of g") == "-");
  CHECK(lines.at("taken back") == "-");
  CHECK(lines.at("beyond the end") == "test.py(59): f");
  CHECK(lines.at("unknown function") == "-");
  CHECK(lines.at("blind") == "-");
  CHECK(lines.at("after a gap") == "-");
  CHECK(lines.at("told again") == "test.py(16): f");
}

TEST_CASE("a backward on a thread of its own has the line that called it") {
  Program p;
  const FunctionId backward = p.b.function("/usr/lib/python3/dist-packages/torch/autograd/__init__.py", 9, "backward");
  const TrackId engine = p.b.thread(101, "pt_autograd_0", 2);
  p.b.on(p.main).at(100).begin(p.f).line(p.f, 7).begin(backward);
  p.b.on(engine)
      .at(200)
      .op(1, "autograd::engine::evaluate_function: MmBackward0")
      .op(2, "aten::mm")
      .op_end(2)
      .op_end(1);
  p.b.on(p.main).at(900).end(backward).end(p.f).clean_exit(1'000);
  const auto lines = lines_of(p.b);
  CHECK(lines.at("autograd::engine::evaluate_function: MmBackward0") == "test.py(17): f");
  CHECK(lines.at("aten::mm") == "test.py(17): f");
}

TEST_CASE("lines of several records are those of one") {
  Program p;
  // Instruction 50 and on, of line 100: pairs (2, +0), (3, -60).
  p.b.raw_definition(static_cast<uint8_t>(Kind::LinesDef),
                     {p.f.value | uint64_t{4} << 32, 50 | uint64_t{100} << 32, 0x77'03'00'02});
  p.b.begin(p.f).line(p.f, 49).op(1, "last").op_end(1).line(p.f, 51).op(2, "next").op_end(2);
  p.b.line(p.f, 52).op(3, "back").op_end(3).clean_exit(1'000);
  const auto lines = lines_of(p.b);
  CHECK(lines.at("last") == "test.py(59): f");
  CHECK(lines.at("next") == "test.py(100): f");
  CHECK(lines.at("back") == "test.py(40): f");
}

TEST_CASE("a timeline has the line of all that the program called, and of its own functions what called them") {
  Program p;
  p.b.at(100).begin(p.f).line(p.f, 1).begin(p.g).line(p.g, 2).begin(p.library).op(1, "aten::relu");
  p.b.at(200).op_end(1).end(p.library).gc_begin(1).gc_end(0, 0).annotation(2, "step").op_end(2).at(300).end(p.g);
  p.b.end(p.f).clean_exit(1'000);
  const test::LoadedTrace trace(p.b);
  const Timeline timeline = timeline_of(trace->processes[0], {});
  std::map<std::string, std::string> of;
  for (const TimelineSpan& span : timeline.rows[0].spans)
    of[std::string(timeline.text(span.name))] =
        std::string(timeline.text(span.place)) + "|" + std::string(timeline.text(span.called_from));
  CHECK(of.at("test.py(1): f") == "|");
  CHECK(of.at("test.py(1): g") == "|test.py(11): f");
  CHECK(of.at(kLibrary) == "test.py(12): g|");
  CHECK(of.at("aten::relu") == "test.py(12): g|");
  CHECK(of.at("Python GC") == "test.py(12): g|");
  CHECK(of.at("step") == "test.py(12): g|");
}

}  // namespace lines_test
