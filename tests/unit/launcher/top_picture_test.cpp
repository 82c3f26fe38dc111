// The picture of `torchprof top`, of jobs of any size.
#include "launcher/watch/top_picture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "launcher/watch/top_groups.h"

namespace top_picture_test {

using namespace torchprof::launcher;

namespace {

constexpr int64_t kMs = 1'000'000;

struct Job {
  TopState state;
  int64_t slow = 0;  // the rank that the others wait for
};

// `waits`: the ranks wait for the slow one in collectives, so that the steps of all are as long.
Job made_up(std::mt19937& random, size_t ranks, bool waits) {
  Job job;
  job.slow = static_cast<int64_t>(random() % ranks);
  job.state.target = "run";
  for (size_t i = 0; i < ranks; ++i) {
    TopProcess process;
    process.pid = static_cast<uint32_t>(1000 + i % 8);
    process.is_live = true;
    process.host = "node" + std::to_string(i / 8);
    process.resident = 1 << 30;
    process.view.rank = static_cast<int64_t>(i);
    process.view.steps = 40;
    process.view.steps_per_second = 80;
    const bool is_slow = process.view.rank == job.slow;
    for (int step = 0; step < 40; ++step)
      process.view.step_ns.push_back((waits || is_slow ? 22 : 12) * kMs + static_cast<int64_t>(random() % kMs));
    process.view.covered_ns = 1000 * kMs;
    if (waits) process.view.collective_ns = (is_slow ? 10 : 450 + static_cast<int64_t>(random() % 30)) * kMs;
    for (int name = 0; name < 30; ++name)
      process.view.operators.push_back({"operator " + std::to_string(name), kMs, 1});
    process.view.functions = process.view.operators;
    job.state.processes.push_back(process);
    if (random() % 4 == 0) {
      TopProcess worker;
      worker.is_live = true;
      worker.view.rank = process.view.rank;
      worker.view.worker = "DataLoader worker 0";
      job.state.processes.push_back(worker);
    }
  }
  return job;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace

TEST_CASE("a picture of any number of ranks fits the terminal, and shows the slowest of them") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const size_t ranks = std::vector<size_t>{2, 4, 14, 64, 1024}[seed % 5];
    const Job job = made_up(random, ranks, random() % 2 == 0);
    const ScreenSize size{120, 40};
    const std::vector<std::string> lines = top_picture(job.state, {size, false, true});
    const std::string text = joined(lines);
    CHECK_MESSAGE(lines.size() <= size.rows, text);
    for (const std::string& line : lines)
      CHECK(static_cast<size_t>(std::ranges::count_if(
                line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; })) <= size.columns);
    CHECK_MESSAGE(text.find("\n" + std::string(("rank " + std::to_string(job.slow) + "         ").substr(0, 9)) +
                            " slowest") != text.npos,
                  text);
    CHECK(text.find("  operator ") != text.npos);
  }
}

TEST_CASE("each process is in one group, and the slow rank in one of its own") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const Job job = made_up(random, 2 + random() % 200, random() % 2 == 0);
    const std::vector<size_t> order = slowest_first(job.state.processes);
    CHECK(job.state.processes[order.front()].view.rank == job.slow);
    const std::vector<RankGroup> groups = groups_of_ranks(job.state.processes, order);
    std::multiset<size_t> members;
    for (const RankGroup& group : groups) members.insert(group.members.begin(), group.members.end());
    CHECK(members.size() == job.state.processes.size());
    CHECK(std::set<size_t>(members.begin(), members.end()).size() == members.size());
    CHECK(groups.front().members == std::vector<size_t>{order.front()});
    CHECK(groups.front().where == "of node" + std::to_string(job.slow / 8) + ": " + std::to_string(job.slow));
  }
}

TEST_CASE("ranks that differ in all ways are a few groups") {
  std::mt19937 random(1);
  Job job = made_up(random, 500, false);
  for (size_t i = 0; i < job.state.processes.size(); ++i)
    std::ranges::fill(job.state.processes[i].view.step_ns, static_cast<int64_t>(i + 1) * kMs);
  const std::vector<size_t> order = slowest_first(job.state.processes);
  const std::vector<RankGroup> groups = groups_of_ranks(job.state.processes, order);
  CHECK(groups.size() <= kMostGroups + 3);
  CHECK(groups.size() >= 3);
}

}  // namespace top_picture_test
