// Which ranks of a large job are looked at.
#include "formats/ranks/choose.h"

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "formats/io/error.h"
#include "tests/unit/support/spool_builder.h"

namespace choose_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

constexpr uint64_t kMs = 1'000'000;

// A job of ranks whose steps last so long.
struct MadeJob {
  std::deque<SpoolBuilder> builders;
  std::vector<const SpoolBuilder*> pointers;

  explicit MadeJob(const std::vector<uint64_t>& step_ms) {
    for (size_t rank = 0; rank < step_ms.size(); ++rank) {
      SpoolBuilder& b = builders.emplace_back(static_cast<uint32_t>(100 + rank));
      b.meta("distributed.rank", std::to_string(rank));
      b.meta("distributed.world_size", std::to_string(step_ms.size()));
      b.meta("window", "auto");
      b.on(b.thread(static_cast<uint32_t>(100 + rank))).at(0).begin(b.function("f"));
      for (uint64_t step = 1; step <= 5; ++step) b.at(step * step_ms[rank] * kMs).step_end(step, 0, 0);
    }
    for (const SpoolBuilder& b : builders) pointers.push_back(&b);
  }
  std::string choose(std::string_view wanted) const {
    const test::LoadedTrace trace(pointers);
    return text_of(choose_ranks(*trace, wanted));
  }
};

}  // namespace

TEST_CASE("ranks are chosen by number, and by how long their steps are") {
  const MadeJob job({10, 12, 11, 30, 14});
  CHECK(job.choose("2,0,2") == "0 and 2");
  CHECK(job.choose("slowest") == "3 (slowest)");
  CHECK(job.choose("typical") == "1 (typical)");
  CHECK(job.choose("0,slowest,typical") == "0, 1 (typical) and 3 (slowest)");
  CHECK(job.choose("3,slowest") == "3 (slowest)");
  CHECK_THROWS_WITH_AS(job.choose("5"),
                       "--ranks 5: the run has no such rank (slowest and typical name two that it has)", Error);
}

TEST_CASE("where ranks wait for each other the slowest is the one that waits least") {
  MadeJob job({20, 20, 20, 20});
  constexpr std::array<uint64_t, 4> kLate = {5, 11, 14, 2};  // ms, in each step
  for (size_t rank = 0; rank < 4; ++rank)
    for (uint64_t step = 0; step < 5; ++step) {
      SpoolBuilder& b = job.builders[rank];
      b.at((step * 20 + kLate[rank]) * kMs).op(step + 1, "gloo:all_reduce").at((step * 20 + 15) * kMs).op_end(step + 1);
    }
  CHECK(job.choose("slowest,typical") == "0 (typical) and 2 (slowest)");
}

TEST_CASE("a part has the ranks that were chosen, and their places in the whole") {
  const MadeJob job({10, 10, 10, 10});
  const test::LoadedTrace trace(job.pointers);
  CHECK(ranks_in(*trace) == 4);
  CHECK(lowest_rank(*trace) == "0");
  std::vector<size_t> indices;
  const Trace part = part_of(*trace, choose_ranks(*trace, "3,1"), &indices);
  REQUIRE(part.processes.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(trace->processes[indices[i]].pid == part.processes[i].pid);
  CHECK(part.processes[0].pid + part.processes[1].pid == 101 + 103);
}

TEST_CASE("a program that is no rank has none to choose") {
  SpoolBuilder b;
  b.on(b.thread(1)).at(0).begin(b.function("f"));
  const test::LoadedTrace trace(b);
  CHECK(choose_ranks(*trace, "slowest,typical").empty());
  CHECK(ranks_in(*trace) == 0);
  CHECK(lowest_rank(*trace).empty());
}

}  // namespace choose_test
