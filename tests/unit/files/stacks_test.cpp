#include "formats/write/stacks.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "formats/analysis/call_tree.h"
#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace stacks_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;
using test::SpoolBuilder;
using test::written;

TEST_CASE("collapsed stacks and speedscope of one process") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  test::train(b, 100);
  const test::LoadedTrace trace(b);
  test::check_golden("stacks.txt", written(*trace, write_stacks));
  const std::string speedscope = written(*trace, write_speedscope);
  CHECK(json::parse(speedscope).at("profiles").size() == 2);
  test::check_golden("speedscope.json", std::regex_replace(speedscope, std::regex("torchprof [0-9.]+"), "torchprof *"));
}

TEST_CASE("a path that comes again is added up, and what is left of microseconds is carried on") {
  SpoolBuilder b(100, {"python3"});
  b.thread(100, "main");
  const FunctionId f = b.function("f");
  for (uint64_t i = 0; i < 3; ++i) {
    b.at(10'000 * i + 1).begin(f).at(10'000 * i + 1001).op(1 + 2 * i, "aten::mm").op(2 + 2 * i, "aten::mul");
    b.at(10'000 * i + 1501).op_end(2 + 2 * i).op_end(1 + 2 * i).at(10'000 * i + 2001).end(f);
  }
  CHECK(written(*test::LoadedTrace(b), write_stacks) ==
        "python3_100;100_(main);test.py(1):_f 4\npython3_100;100_(main);test.py(1):_f;aten::mm;aten::mul 2\n");
}

TEST_CASE("what is left of microseconds stays with its thread") {
  SpoolBuilder b(100, {"python3"});
  for (const uint32_t tid : {100, 101}) b.on(b.thread(tid, "t")).at(1000).op(tid, "aten::mm").at(2700).op_end(tid);
  CHECK(written(*test::LoadedTrace(b), write_stacks) ==
        "python3_100;100_(t);aten::mm 1\npython3_100;101_(t);aten::mm 1\n");
}

TEST_CASE("an operator that a function leaves open is inside of what called the function") {
  SpoolBuilder b(100, {"python3"});
  b.thread(100, "main");
  const FunctionId f = b.function("f"), enter = b.function("__enter__"), g = b.function("g");
  b.at(1'000).begin(f).at(2'000).begin(enter).at(3'000).annotation(1, "block");
  b.op(2, "aten::empty").at(4'000).op_end(2).at(5'000).end(enter);
  b.at(6'000).begin(g).at(9'000).end(g).at(10'000).op_end(1).at(11'000).end(f);
  const std::string head = "python3_100;100_(main);test.py(1):_f";
  CHECK(written(*test::LoadedTrace(b), write_stacks) == head + " 2\n" + head + ";test.py(1):___enter__ 1\n" + head +
                                                            ";block 3\n" + head + ";block;aten::empty 1\n" + head +
                                                            ";block;test.py(1):_g 3\n");
}

TEST_CASE("steps that a program marks are one path") {
  SpoolBuilder b(100, {"python3"});
  b.thread(100, "main");
  for (uint64_t i = 0; i < 3; ++i)
    b.at(10'000 * i).annotation(i + 1, "ProfilerStep#" + std::to_string(i)).at(10'000 * i + 2'000).op_end(i + 1);
  CHECK(written(*test::LoadedTrace(b), write_stacks) == "python3_100;100_(main);ProfilerStep* 6\n");
}

TEST_CASE("hostile names are text, and one line stays one line") {
  SpoolBuilder b;
  test::hostile(b);
  const test::LoadedTrace trace(b);
  const std::string stacks = written(*trace, write_stacks);
  CHECK(json(stacks).dump().size() > 1000);  // throws for bytes that are no UTF-8
  CHECK(std::ranges::count(stacks, '\n') == std::ranges::count(stacks, ' '));
  CHECK(std::ranges::count(stacks, '\n') == 4);
  const json profile = json::parse(written(*trace, write_speedscope));
  CHECK(profile.at("shared").at("frames").size() == 5);
  CHECK(profile.at("profiles")[0].at("endValue") == 4000);
}

TEST_CASE("nothing is an empty profile") {
  const test::LoadedTrace trace{SpoolBuilder()};
  CHECK(written(*trace, write_stacks).empty());
  CHECK(json::parse(written(*trace, write_speedscope)).at("profiles").empty());
}

}  // namespace stacks_test
