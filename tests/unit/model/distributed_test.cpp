#include "formats/trace/distributed.h"

#include <doctest/doctest.h>

#include "tests/unit/support/spool_builder.h"

namespace distributed_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

std::string json(const SpoolBuilder& b) {
  const test::LoadedTrace trace(b);
  return distributed_json(distributed_of(trace->processes.at(0)));
}

}  // namespace

TEST_CASE("runs of ranks") {
  using Ranks = std::vector<int64_t>;
  CHECK(ranks_of("") == Ranks{});
  CHECK(ranks_of("7") == Ranks{7});
  CHECK(ranks_of("0-3") == Ranks{0, 1, 2, 3});
  CHECK(ranks_of("0-2,8-14/2,5") == Ranks{0, 1, 2, 8, 10, 12, 14, 5});
  for (const char* bad : {"a", "-1", "3-1", "0-9/0", "1,,2", "0-99999999999", "0-1000000"}) {
    CAPTURE(bad);
    CHECK(ranks_of(bad).empty());
  }
}

TEST_CASE("distributedInfo is what torch.profiler writes, with a space before the rank") {
  SpoolBuilder b;
  b.meta("distributed.rank", "1");
  b.meta("distributed.world_size", "2");
  b.meta("distributed.backend", "gloo");
  b.meta("distributed.group.0", "2\t0-1\tcpu:gloo,cuda:gloo\t0\tdefault_pg");
  b.meta("distributed.group.1", "1\t1\tgloo\ta \"name\"\t");
  b.meta("environment.RANK", "5");
  CHECK(
      json(b) ==
      R"({"backend": "gloo", "rank": 1, "world_size": 2, "pg_count": 2, "pg_config": [)"
      R"({"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo,cuda:gloo", "pg_size": 2, "ranks": [0, 1]}, )"
      R"({"pg_name": "a \"name\"", "pg_desc": "", "backend_config": "gloo", "pg_size": 1, "ranks": [1]}]})");
}

TEST_CASE("the environment's rank is said to be that") {
  SpoolBuilder b;
  b.meta("environment.RANK", "3");
  CHECK(json(b) == R"({"backend": "unknown", "rank": 3, "source": "environment variable RANK"})");
}

TEST_CASE("so is that of Open MPI, after torchrun's") {
  SpoolBuilder b;
  b.meta("environment.OMPI_COMM_WORLD_RANK", "3");
  b.meta("environment.OMPI_COMM_WORLD_SIZE", "4");
  CHECK(json(b) == R"({"backend": "unknown", "rank": 3, "world_size": 4, )"
                   R"("source": "environment variable OMPI_COMM_WORLD_RANK"})");
  b.meta("environment.RANK", "1");
  CHECK(json(b) == R"({"backend": "unknown", "rank": 1, "source": "environment variable RANK"})");
}

TEST_CASE("what a collective said of its rank goes before the environment") {
  SpoolBuilder b;
  b.meta("environment.RANK", "3");
  b.meta("collectives.rank", "7");
  b.meta("collectives.world_size", "8");
  CHECK(json(b) == R"({"backend": "unknown", "rank": 7, "world_size": 8, "source": "arguments of collectives"})");
}

TEST_CASE("without a rank there is nothing") {
  SpoolBuilder b;
  b.meta("distributed.rank", "one");
  CHECK(json(b).empty());
}

}  // namespace distributed_test
