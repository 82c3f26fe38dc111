// Spools of several machines on one clock.
#include "formats/ranks/align.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "formats/analysis/statistics.h"
#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace align_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

constexpr uint64_t kMs = 1'000'000;

struct Host {
  std::string name;
  int64_t ahead_ns = 0;
  double drift = 0;
};

// A job of ranks on these hosts, each of which has 80 steps of 20 ms with a barrier; `late` comes 5 ms later than the
// others. Its spools lie in a directory.
struct Job {
  TemporaryDirectory directory;
  std::vector<std::filesystem::path> files;

  explicit Job(const std::vector<Host>& hosts, size_t late = SIZE_MAX, uint64_t seed = 1) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::deque<SpoolBuilder> ranks;
    std::vector<uint64_t> begins(hosts.size());
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      SpoolBuilder& b = ranks.emplace_back(static_cast<uint32_t>(100 + rank));
      std::snprintf(b.header().host, sizeof(b.header().host), "%s", hosts[rank].name.c_str());
      b.header().start.realtime.value += hosts[rank].ahead_ns;
      b.meta("distributed.rank", std::to_string(rank));
      b.meta("distributed.world_size", std::to_string(hosts.size()));
      b.on(b.thread(static_cast<uint32_t>(100 + rank)));
    }
    for (uint64_t step = 0; step < 80; ++step) {
      const uint64_t now = (1 + step) * 20 * kMs;
      uint64_t last = 0;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        begins[rank] = now + random() % 300'000 + (rank == late ? 5 * kMs : 0);
        last = std::max(last, begins[rank]);
      }
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto clock = [&](uint64_t ns) {
          return ns + static_cast<uint64_t>(hosts[rank].drift * static_cast<double>(ns));
        };
        SpoolBuilder& b = ranks[rank];
        b.at(clock(now - 10 * kMs)).annotation(2 * step + 1, "ProfilerStep#" + std::to_string(step));
        b.at(clock(begins[rank])).op(2 * step + 2, "gloo:barrier", {.is_async = true});
        b.at(clock(last + 30'000 + random() % 100'000)).op_end(2 * step + 2);
        b.at(clock(now + 8 * kMs)).op_end(2 * step + 1);
      }
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].clean_exit(1'700 * kMs);
      files.push_back(directory / (std::to_string(rank) + ".spool"));
      ranks[rank].write(files.back());
    }
  }
};

int64_t begin_of_steps(const Process& p) {
  const Statistics s = statistics_of(p);
  return s.steps.spans.at(40).begin;
}

const Process& rank_of(const Trace& trace, size_t rank) {
  for (const Process& p : trace.processes)
    if (p.pid == 100 + rank) return p;
  FAIL("no such rank");
  return trace.processes.front();
}

}  // namespace

TEST_CASE("machines are put to the clock of the lowest rank's, whoever wrote its spool first") {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const Job job({{"b", 7'000'000, 20e-6}, {"b", 7'000'000, 20e-6}, {"a"}, {"c", -90'000'000, -35e-6}}, SIZE_MAX,
                  seed);
    const Trace trace = load_aligned(job.files);
    REQUIRE(trace.machines.size() == 3);
    for (const Process& p : trace.processes) CHECK(p.clock_reference == rank_of(trace, 0).machine);
    for (const size_t rank : {1u, 2u, 3u}) {
      const int64_t off = begin_of_steps(rank_of(trace, rank)) - begin_of_steps(rank_of(trace, 0));
      CAPTURE(rank);
      CHECK(std::abs(off) <= 60'000);
      if (rank > 1) CHECK(std::abs(off) <= rank_of(trace, rank).clock_error_ns);
    }
    CHECK(trace.machines[2].ahead_ns == doctest::Approx(-97'000'000).epsilon(0.01));
  }
}

// Their work grows with the number of hosts and with what they did together, not with all pairs of hosts.
TEST_CASE("hundreds of machines are put to one clock") {
  std::vector<Host> hosts;
  std::mt19937 random(5);
  for (size_t i = 0; i < 300; ++i)
    hosts.push_back({"host" + std::to_string(i), static_cast<int64_t>(random() % 20'000'000) - 10'000'000,
                     (static_cast<double>(random() % 80) - 40) * 1e-6});
  const Job job(hosts);
  const Trace trace = load_aligned(job.files);
  REQUIRE(trace.machines.size() == hosts.size());
  for (size_t rank = 1; rank < hosts.size(); ++rank) {
    const Process& p = rank_of(trace, rank);
    const int64_t off = std::abs(begin_of_steps(p) - begin_of_steps(rank_of(trace, 0)));
    CAPTURE(rank);
    CHECK(off <= 100'000);
    CHECK(off <= p.clock_error_ns);
  }
}

TEST_CASE("of a balanced job on two hosts nobody is called slow; of one with a late rank that one") {
  const auto says = [](size_t late) {
    const Job job({{"a"}, {"a"}, {"b", 5'000'000, 20e-6}, {"b", 5'000'000, 20e-6}}, late);
    const Trace trace = load_aligned(job.files);
    return summary_text(trace, {.tables = {"advice", "steps"}});
  };
  const std::string balanced = says(SIZE_MAX), late = says(1);
  CAPTURE(balanced);
  CAPTURE(late);
  CHECK(balanced.find("wait for rank") == std::string::npos);
  CHECK(balanced.find(" 2 hosts on one clock within ") != std::string::npos);
  CHECK(late.find("wait for rank 1") != std::string::npos);
}

TEST_CASE("machines that share nothing keep their clocks, and that is said") {
  const Job one({{"a"}}), other({{"b", 5'000'000}});
  const Trace trace = load_aligned({one.files[0], other.files[0]});
  REQUIRE(trace.machines.size() == 2);
  CHECK_FALSE(trace.machines[0].correction);
  CHECK_FALSE(trace.machines[1].correction);
  CHECK(clock_lines(trace).at(0).find("clock of b: as it is") == 0);
  CHECK(clock_lines(load_aligned(one.files)).empty());
}

}  // namespace align_test
