// A part of a run: what is in it, what is cut, and that it adds up.
#include <doctest/doctest.h>

#include "formats/error.h"
#include "formats/slice_request.h"
#include "formats/stacks.h"
#include "tests/unit/spool_builder.h"

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// f calls g from 2 to 4 us and aten::mm from 6 to 9; a worker runs aten::add.
std::string stacks_of(const SliceRequest& request) {
  SpoolBuilder b(100, {"python3"});
  const TrackId main = b.thread(100, "main"), worker = b.thread(101, "worker");
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(main).at(1'000).begin(f).at(2'000).begin(g).at(4'000).end(g);
  b.at(6'000).op(1, "aten::mm").at(9'000).op_end(1).at(10'000).end(f);
  b.on(worker).at(3'000).op(2, "aten::add").at(8'000).op_end(2).clean_exit(20'000);
  const test::LoadedTrace loaded(b);
  Trace trace = *loaded;
  select(request, trace);
  return test::written(trace, write_stacks);
}

const std::string kMain = "python3_100;100_(main);test.py(1):_f", kWorker = "python3_100;101_(worker);aten::add";

}  // namespace

TEST_CASE("what is open at an edge is cut there, what lies beyond is left out") {
  CHECK(stacks_of({}) == kMain + " 4\n" + kMain + ";test.py(1):_g 2\n" + kMain + ";aten::mm 3\n" + kWorker + " 5\n");
  CHECK(stacks_of({.time = {{3'000, 7'000}}}) ==
        kMain + " 2\n" + kMain + ";test.py(1):_g 1\n" + kMain + ";aten::mm 1\n" + kWorker + " 4\n");
  CHECK(stacks_of({.time = {{4'000, 6'000}}}) == kMain + " 2\n" + kWorker + " 2\n");
}

TEST_CASE("what is too short is its caller's own time") {
  CHECK(stacks_of({.min_ns = 3'000}) == kMain + " 6\n" + kMain + ";aten::mm 3\n" + kWorker + " 5\n");
}

TEST_CASE("threads by name and by id") {
  CHECK(stacks_of({.threads = {"worker"}}) == kWorker + " 5\n");
  CHECK(stacks_of({.threads = {"101"}}) == kWorker + " 5\n");
  CHECK_THROWS_AS(stacks_of({.threads = {"nobody"}}), Error);
  CHECK_THROWS_AS(stacks_of({.processes = {"99"}}), Error);
  CHECK_THROWS_AS(stacks_of({.steps = {{1, 2}}}), Error);
  CHECK_THROWS_AS(stacks_of({.time = {{20'000, 30'000}}}), Error);
}

TEST_CASE("values") {
  CHECK(parse_steps("10..14") == std::pair<uint64_t, uint64_t>(10, 14));
  CHECK(parse_steps("7") == std::pair<uint64_t, uint64_t>(7, 7));
  CHECK(parse_time("1.5s..2s") == std::pair<int64_t, int64_t>(1'500'000'000, 2'000'000'000));
  CHECK(parse_time("200ms..").value().first == 200'000'000);
  CHECK(parse_duration("10us") == 10'000);
  for (const char* bad : {"", "..", "5..2", "a..b", "1..2..3", "-1..2", "1.."}) CHECK_FALSE(parse_steps(bad));
  for (const char* bad : {"", "..", "2s..1s", "1..2", "1s", "nans..2s", "-1s..2s", "1e300s.."})
    CHECK_FALSE(parse_time(bad));
  for (const char* bad : {"", "us", "1", "-1us", "1 us", "infs", "nanus"}) CHECK_FALSE(parse_duration(bad));
}
