// Which memory that steps leave behind counts as growth, and which does not.
#include "formats/memory/growth.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/unit/support/spool_builder.h"

namespace memory_growth_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// Steps of 1 us, one behind the other. `left`: bytes that each allocates and nothing frees before the last has ended.
std::vector<MemoryGrowth> grown(const std::vector<int64_t>& left, bool has_windows = false) {
  SpoolBuilder b;
  b.on(b.thread(101));
  if (has_windows) {
    b.window(1, 0, 1, 3000);
    b.window(2, 3, 3001, 200'000);
  }
  std::vector<StepSpan> steps;
  const auto memory = [&b](uint64_t time, uint64_t address, int64_t bytes) {
    b.at(time).raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), 1 << 20, 0, 0xff00});
  };
  for (size_t i = 0; i < left.size(); ++i) {
    const uint64_t begin = (i + 1) * 1000;
    steps.push_back(
        {test::kStartNs + static_cast<int64_t>(begin), test::kStartNs + static_cast<int64_t>(begin) + 1000, i});
    b.at(begin + 100).op(i + 1, "keeps");
    if (left[i] != 0) memory(begin + 200, 0x1000 + i, left[i]);
    memory(begin + 300, 0x9000, 7777);
    memory(begin + 400, 0x9000, -7777);
    b.at(begin + 500).op_end(i + 1);
  }
  for (size_t i = 0; i < left.size(); ++i)
    if (left[i] != 0) memory(150'000 + i, 0x1000 + i, -left[i]);
  const test::LoadedTrace trace(b);
  return growth_of(trace->processes.at(0), steps);
}

}  // namespace

TEST_CASE("what each step leaves grows: bytes, blocks and steps of those that could leave some") {
  const auto found = grown({100, 10, 10, 10, 10, 10, 10, 10});
  REQUIRE(found.size() == 1);
  CHECK(found[0].owner.op == "keeps");
  CHECK((found[0].bytes == 50 && found[0].blocks == 5 && found[0].steps == 5 && found[0].looked == 5));
}

TEST_CASE("every third step is growth too") { CHECK(grown({0, 9, 0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0, 9}).size() == 1); }

TEST_CASE("what comes once, a cache that fills, what is young and what was collected so far is no growth") {
  CHECK(grown({100, 0, 0, 0, 0, 0, 0, 0}).empty());
  CHECK(grown({100, 90, 80, 70, 0, 0, 0, 0, 0, 0, 0, 0}).empty());
  CHECK(grown({0, 0, 0, 0, 0, 0, 10, 10}).empty());
  CHECK(grown({0, 0, 0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 10}).empty());
}

TEST_CASE("few steps say nothing, nor do several windows, between which frees are not seen") {
  CHECK(grown({10, 10, 10, 10, 10}).empty());
  CHECK(grown({10, 10, 10, 10, 10, 10}).size() == 1);
  CHECK(grown({10, 10, 10, 10, 10, 10, 10, 10}, true).empty());
}

}  // namespace memory_growth_test
