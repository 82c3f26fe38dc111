// Time by line of Python: formats/analysis/python_lines.h has the definitions.
#include "formats/analysis/python_lines.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "formats/analysis/statistics.h"
#include "formats/report/summary.h"
#include "tests/unit/support/gpu_program.h"

namespace python_lines_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

LineTallies lines_of(const SpoolBuilder& b) {
  const test::LoadedTrace trace(b);
  return statistics_of(trace->processes[0], {.has_lines = true}).lines;
}

bool is(const LineTallies& tallies, const std::string& line, int64_t self_ns, int64_t total_ns, uint64_t calls) {
  const auto it = tallies.lines.find(line);
  if (it == tallies.lines.end()) return false;
  CAPTURE(it->second.self_ns);
  CAPTURE(it->second.total_ns);
  CAPTURE(it->second.calls);
  CHECK((it->second.self_ns == self_ns && it->second.total_ns == total_ns && it->second.calls == calls));
  return true;
}

// A frame of a native stack that is a function of Python at this line.
void python_frame(SpoolBuilder& b, uint32_t id, uint32_t caller, FunctionId function, uint64_t line) {
  b.raw_definition(25, {id | uint64_t{caller} << 32, uint64_t{function.value} << 32, line});
}

constexpr uint8_t kNativeStack = 90;

}  // namespace

TEST_CASE("a C call belongs to the line that makes it, without the functions of Python that it calls") {
  SpoolBuilder b;
  const FunctionId f = b.function("f"), g = b.function("g");
  const CallSiteId map = b.call_site("map", f, 10), len = b.call_site("len", g, 20), unknown = b.call_site("x", g, 0);
  b.on(b.thread(100)).at(0).begin(f).at(100).c_begin(map).at(200).begin(g).at(300).c_begin(len).at(500).c_end();
  b.at(510).c_begin(unknown).at(520).c_end().at(900).end(g).at(1'000).c_end().at(1'100).c_begin(map).at(1'150).c_end();
  b.at(2'000).end(f).clean_exit(3'000);
  const LineTallies tallies = lines_of(b);
  CHECK(tallies.lines.size() == 2);
  CHECK(is(tallies, "test.py(10): f", 250, 950, 2));
  CHECK(is(tallies, "test.py(20): g", 200, 200, 1));
}

TEST_CASE("a line that calls itself counts once in its total") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  const CallSiteId site = b.call_site("map", f, 10);
  b.on(b.thread(100)).at(0).begin(f).at(100).c_begin(site).at(200).begin(f).at(300).c_begin(site).at(400).c_end();
  b.at(500).end(f).at(600).c_end().at(700).end(f).clean_exit(1'000);
  CHECK(is(lines_of(b), "test.py(10): f", 300, 500, 2));
}

TEST_CASE("an operator belongs to the innermost line of its stack, and counts in the total of those that called") {
  SpoolBuilder b;
  const FunctionId f = b.function("f"), g = b.function("g");
  python_frame(b, 1, 0, f, 3);  // calls g
  python_frame(b, 2, 1, g, 5);
  python_frame(b, 3, 1, g, 6);
  const auto op = [&](uint64_t at, uint64_t key, uint32_t stack) {
    b.at(at).op(key, "aten::mm").raw(kNativeStack, {stack});
  };
  b.on(b.thread(100)).at(0).begin(f).begin(g);
  op(100, 1, 2);  // with one of the same line inside
  op(150, 2, 2);
  b.at(200).op_end(2).at(300).op_end(1);
  op(400, 3, 3);
  b.at(500).op_end(3).at(600).end(g).end(f);
  b.on(b.thread(101)).at(0).op(4, "aten::mul").at(70).op_end(4).clean_exit(1'000);
  const LineTallies tallies = lines_of(b);
  CHECK(is(tallies, "test.py(5): g", 200, 200, 1));
  CHECK(is(tallies, "test.py(6): g", 100, 100, 1));
  CHECK(is(tallies, "test.py(3): f", 0, 300, 0));
  CHECK(tallies.unknown_ns == 70);
}

TEST_CASE("an operator inside of a C call of the same function has its line") {
  SpoolBuilder b;
  const FunctionId f = b.function("f"), g = b.function("g");
  const CallSiteId mm = b.call_site("mm", f, 10);
  b.on(b.thread(100)).at(0).begin(f).at(100).c_begin(mm).at(110).op(1, "aten::mm").at(190).op_end(1).at(200).c_end();
  b.at(300).op(2, "aten::add").at(310).begin(g).op(3, "aten::mm").at(320).op_end(3).end(g).at(330).op_end(2);
  b.at(400).end(f).clean_exit(1'000);
  CHECK(is(lines_of(b), "test.py(10): f", 100, 100, 1));
  const test::LoadedTrace trace(b);
  OpGrouping by_line;
  REQUIRE(parse_grouping("line", by_line));
  const OpGroups groups = statistics_of(trace->processes[0], {.grouping = by_line}).op_groups;
  CHECK(groups.at(std::string("aten::mm\0test.py(10): f", 23)).tally.total_ns == 80);
  CHECK(groups.at(std::string("aten::mm\0", 9)).tally.total_ns == 10);
  CHECK(groups.at(std::string("aten::add\0", 10)).tally.total_ns == 30);
}

TEST_CASE("work of a GPU belongs to the line that launched it") {
  test::Program gpu;
  const FunctionId f = gpu.b.function("f");
  const CallSiteId mm = gpu.b.call_site("mm", f, 10);
  gpu.b.at(1'000).begin(f).c_begin(mm).op(1, "aten::mm").at(9'000).op_end(1).c_end().end(f);
  gpu.deliver();
  gpu.b.gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(gpu.b, 4'000, 8'000, 5));
  CHECK(lines_of(gpu.b).lines.at("test.py(10): f").gpu_ns == 4'000);
}

TEST_CASE("self times of lines never overlap, and a total holds its self time") {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    SpoolBuilder b;
    b.use_chunks_of(64 * 1024);
    std::vector<FunctionId> functions;
    std::vector<CallSiteId> sites;
    for (uint32_t i = 0; i < 3; ++i) {
      functions.push_back(b.function("test.py", 1, std::string(1, static_cast<char>('f' + i))));
      sites.push_back(b.call_site("c", functions.back(), 10 + i));
    }
    b.on(b.thread(100));
    std::vector<int> open;  // a function's number, or -1: a C call
    uint64_t t = 0;
    for (int i = 0; i < 300; ++i) {
      b.at(t += random() % 20);
      if (!open.empty() && (open.size() > 9 || random() % 2 == 0)) {
        open.back() < 0 ? b.c_end() : b.end(functions[static_cast<size_t>(open.back())]);
        open.pop_back();
      } else if (const auto caller = std::ranges::find_if(open.rbegin(), open.rend(), [](int x) { return x >= 0; });
                 caller != open.rend() && random() % 2 == 0) {
        b.c_begin(sites[static_cast<size_t>(*caller)]);
        open.push_back(-1);
      } else {
        open.push_back(static_cast<int>(random() % 3));
        b.begin(functions[static_cast<size_t>(open.back())]);
      }
    }
    b.clean_exit(t + 1);
    int64_t self = 0;
    for (const auto& [line, tally] : lines_of(b).lines) {
      CHECK((tally.self_ns >= 0 && tally.self_ns <= tally.total_ns && tally.total_ns <= static_cast<int64_t>(t + 1)));
      self += tally.self_ns;
    }
    CHECK((self > 0 && self <= static_cast<int64_t>(t + 1)));
  }
}

TEST_CASE("the report of Python has functions and lines, and says where lines come from") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  const CallSiteId mm = b.call_site("mm", f, 10);
  b.on(b.thread(100)).at(0).begin(f).at(100'000).c_begin(mm).at(400'000).c_end().at(1'000'000).end(f);
  b.op(1, "aten::add").at(1'100'000).op_end(1).clean_exit(2'000'000);
  const test::LoadedTrace trace(b);
  test::check_golden("python_lines.txt", summary_text(*trace, {.tables = {"python"}, .has_totals = true}));
  SpoolBuilder plain;
  plain.on(plain.thread(100)).at(0).begin(plain.function("f")).at(10).clean_exit(1'000);
  const std::string none = summary_text(*test::LoadedTrace(plain), {.tables = {"python"}, .has_totals = true});
  CHECK(none.find("lines come from the raw records of runs with --python functions (the default) or --native on") !=
        std::string::npos);
}

}  // namespace python_lines_test
