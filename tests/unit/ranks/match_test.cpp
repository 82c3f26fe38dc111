// Which calls are the same collective.
#include "formats/ranks/match.h"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "formats/ranks/waits.h"

namespace match_test {

using namespace torchprof::formats;

namespace {

constexpr int64_t kMs = 1'000'000;

std::vector<const CommsCalls*> pointers(const std::deque<CommsCalls>& all) {
  std::vector<const CommsCalls*> out;
  for (const CommsCalls& each : all) out.push_back(&each);
  return out;
}

// A job of ranks that do the same collectives: each knows the number of each of its calls.
struct RandomJob {
  std::deque<CommsCalls> ranks;
  std::map<const CommsCall*, uint64_t> truth;  // after finish()
  std::vector<std::vector<uint64_t>> numbers;  // by rank, of its calls

  // Each step has some, which are queued one after the other and then done in this order.
  RandomJob(std::mt19937& random, size_t count, size_t steps, size_t most_queued) : ranks(count), numbers(count) {
    std::vector<int64_t> now(count);
    uint64_t number = 0;
    for (size_t step = 0; step < steps; ++step) {
      const size_t queued = 1 + random() % most_queued;
      std::vector<std::vector<int64_t>> begins(count);
      for (size_t rank = 0; rank < count; ++rank) {
        now[rank] += kMs + static_cast<int64_t>(random() % kMs);
        for (size_t i = 0; i < queued; ++i) begins[rank].push_back(now[rank] += 1 + static_cast<int64_t>(random() % 9));
      }
      int64_t done = 0;
      for (size_t i = 0; i < queued; ++i, ++number) {
        for (const auto& of_rank : begins) done = std::max(done, of_rank[i]);
        for (size_t rank = 0; rank < count; ++rank) {
          const int64_t end = done + 1 + static_cast<int64_t>(random() % 50);
          ranks[rank][{"gloo:all_reduce"}].push_back(
              {.begin = begins[rank][i], .end = end, .bytes = 4, .step = static_cast<int64_t>(step) + 1});
          numbers[rank].push_back(number);
          now[rank] = std::max(now[rank], end);
        }
        done += 60;
      }
    }
  }
  // Keeps those of a rank whose numbers are chosen.
  template <class Chosen>
  void keep(size_t rank, Chosen chosen) {
    std::vector<CommsCall>& calls = ranks[rank][{"gloo:all_reduce"}];
    std::vector<CommsCall> kept;
    std::vector<uint64_t> kept_numbers;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!chosen(numbers[rank][i], calls[i])) continue;
      kept.push_back(calls[i]);
      kept_numbers.push_back(numbers[rank][i]);
    }
    calls = std::move(kept);
    numbers[rank] = std::move(kept_numbers);
  }
  MatchedKind match() {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (size_t i = 0; i < numbers[rank].size(); ++i) truth[&ranks[rank][{"gloo:all_reduce"}][i]] = numbers[rank][i];
    return torchprof::formats::match(pointers(ranks), Compared::kClocks)[{"gloo:all_reduce"}];
  }
  // How many are matched; -1: some that are not the same.
  int64_t right(const MatchedKind& kind) const {
    int64_t count = 0;
    for (const MatchedCalls& matched : kind.of_jobs)
      for (size_t n = 0; n < matched.rows(); ++n) {
        std::set<uint64_t> found;
        for (size_t i = 0; i < matched.processes.size(); ++i)
          if (const CommsCall* call = matched.row(n)[i]) found.insert(truth.at(call)), ++count;
        if (found.size() != 1) return -1;
      }
    return count;
  }
};

}  // namespace

TEST_CASE("calls of windows that were opened one after another are matched by what goes on at once, or not at all") {
  std::mt19937 random(11);
  int64_t matched = 0, all = 0;
  for (int round = 0; round < 200; ++round) {
    RandomJob job(random, 2 + random() % 3, 30, 1 + random() % 4);
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const uint64_t from = random() % 12, to = 20 + random() % 20;
      job.keep(rank, [&](uint64_t number, CommsCall& call) {
        call.step = CommsCall::kNoStep;
        return number >= from && number < to;
      });
      all += static_cast<int64_t>(job.numbers[rank].size());
    }
    const MatchedKind kind = job.match();
    const int64_t right = job.right(kind);
    REQUIRE(right >= 0);
    matched += right;
    for (const MatchedCalls& calls : kind.of_jobs) CHECK(calls.by == std::vector(calls.rows(), MatchedBy::kTime));
  }
  CHECK(matched * 10 > all * 6);
}

TEST_CASE("calls of whole runs are matched to the last, also if a rank ends early") {
  std::mt19937 random(12);
  for (int round = 0; round < 50; ++round) {
    RandomJob job(random, 3, 20, 4);
    const uint64_t died = 10 + random() % 10;
    for (size_t rank = 0; rank < 3; ++rank)
      job.keep(rank, [&](uint64_t number, CommsCall& call) {
        call.step = 0;
        return rank != 1 || number < died;
      });
    const MatchedKind kind = job.match();
    CHECK(job.right(kind) == static_cast<int64_t>(2 * job.numbers[0].size() + died));
    CHECK(kind.uncertain == 0);
    for (const MatchedCalls& calls : kind.of_jobs) CHECK(calls.by == std::vector(calls.rows(), MatchedBy::kBegin));
  }
}

TEST_CASE("a step that one rank lacks is left out for that rank alone") {
  std::mt19937 random(13);
  for (int round = 0; round < 50; ++round) {
    RandomJob job(random, 3, 20, 4);
    int64_t kept = 0;
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto without = static_cast<int64_t>(1 + random() % 20);
      job.keep(rank, [&](uint64_t, const CommsCall& call) { return rank == 2 || call.step != without; });
      kept += static_cast<int64_t>(job.numbers[rank].size());
    }
    // A step that two lack has nobody to be compared with.
    std::map<int64_t, int64_t> ranks_of_step, calls_of_step;
    for (const CommsCalls& rank : job.ranks) {
      std::set<int64_t> steps;
      for (const CommsCall& call : rank.kinds.begin()->second) steps.insert(call.step), ++calls_of_step[call.step];
      for (const int64_t step : steps) ++ranks_of_step[step];
    }
    for (const auto& [step, ranks] : ranks_of_step)
      if (ranks == 1) kept -= calls_of_step[step];
    const MatchedKind kind = job.match();
    CHECK(job.right(kind) == kept);
    for (const MatchedCalls& calls : kind.of_jobs) CHECK(calls.by == std::vector(calls.rows(), MatchedBy::kStep));
  }
}

TEST_CASE("a step with more of them in one rank than in another, and one of another size, are uncertain") {
  CommsCalls first, second;
  first[{"nccl"}] = {{.begin = 0, .end = 9, .bytes = 4, .step = 1}, {.begin = 10, .end = 19, .bytes = 4, .step = 1}};
  second[{"nccl"}] = {{.begin = 0, .end = 9, .bytes = 4, .step = 1}};
  CHECK(match({&first, &second}, Compared::kClocks)[{"nccl"}].uncertain == 3);
  first[{"allreduce"}] = {{.begin = 0, .end = 9, .bytes = 4}, {.begin = 20, .end = 29, .bytes = 4}};
  second[{"allreduce"}] = {{.begin = 0, .end = 9, .bytes = 4}, {.begin = 20, .end = 29, .bytes = 8}};
  auto kinds = match({&first, &second}, Compared::kClocks);
  CHECK(kinds[{"allreduce"}].uncertain == 2);
  CHECK(kinds[{"allreduce"}].of_jobs.at(0).rows() == 1);
}

TEST_CASE("torch's numbers are believed, whatever came before them") {
  CommsCalls first, second;
  first[{"allreduce"}] = {{.begin = 100, .end = 109, .bytes = 4, .step = CommsCall::kNoStep, .number = 7},
                          {.begin = 200, .end = 209, .bytes = 4, .step = CommsCall::kNoStep, .number = 8}};
  second[{"allreduce"}] = {{.begin = 104, .end = 108, .bytes = 4, .step = 0, .number = 8},
                           {.begin = 204, .end = 208, .bytes = 4, .step = 0, .number = 9}};
  const auto kinds = match({&first, &second}, Compared::kClocks);
  const MatchedCalls& matched = kinds.at({"allreduce"}).of_jobs.at(0);
  REQUIRE(matched.rows() == 1);
  CHECK(matched.by == std::vector{MatchedBy::kNumber});
  CHECK((matched.row(0)[0]->begin == 200 && matched.row(0)[1]->begin == 104));
}

TEST_CASE("calls of another job, of another clock, and of a group that is not known are not compared") {
  const auto compared = [](auto change) {
    CommsCalls first, second;
    for (CommsCalls* each : {&first, &second})
      (*each)[{"gloo:all_reduce"}] = {{.begin = each == &first ? 0 : 60, .end = 100, .bytes = 4}};
    change(second);
    return compare({&first, &second})[{"gloo:all_reduce"}].compared;
  };
  CHECK(compared([](CommsCalls&) {}) == 1);
  CHECK(compared([](CommsCalls& c) { c.job = 1; }) == 0);
  CHECK(compared([](CommsCalls& c) { c.machine = c.reference = 1; }) == 0);
  CHECK(compared([](CommsCalls& c) { c.has_one_group = false; }) == 0);
}

TEST_CASE("a wait that is shorter than the clocks are off is none, and nobody is said to be last") {
  const auto tally = [](int64_t error, int64_t late) {
    CommsCalls first, second;
    first[{"gloo:barrier"}] = {{.begin = 0, .end = 900, .bytes = 0}};
    second[{"gloo:barrier"}] = {{.begin = late, .end = 900, .bytes = 0}};
    second.machine = 1;
    second.error_ns = error;
    return compare({&first, &second})[{"gloo:barrier"}];
  };
  CHECK((tally(100, 100).waiting_ns == 0 && tally(100, 100).slowest_calls == 0 && tally(100, 100).compared == 1));
  CHECK((tally(100, 101).waiting_ns == 101 && tally(100, 101).slowest == 1 && tally(100, 101).slowest_calls == 1));
}

TEST_CASE("who receives waits for the one who sends to it, with the same tag") {
  std::deque<CommsCalls> ranks(3);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].rank = static_cast<int64_t>(i);
  ranks[0][{"gloo:send"}] = {{.begin = 50, .end = 60, .bytes = 4, .peer = 2, .tag = 1},
                             {.begin = 70, .end = 90, .bytes = 4, .peer = 2, .tag = 0}};
  ranks[1][{"gloo:send"}] = {{.begin = 5, .end = 60, .bytes = 4, .peer = 2, .tag = 0}};
  ranks[2][{"gloo:recv"}] = {{.begin = 0, .end = 95, .bytes = 4, .peer = 0, .tag = 0},
                             {.begin = 0, .end = 65, .bytes = 4, .peer = 0, .tag = 1},
                             {.begin = 10, .end = 65, .bytes = 4, .peer = 1, .tag = 0},
                             {.begin = 10, .end = 65, .bytes = 4, .peer = -1, .tag = 0}};
  const CommsTally tally = compare(pointers(ranks))[{"gloo:recv"}];
  CHECK((tally.compared == 3 && tally.waiting_ns == 70 + 50 && tally.slowest == 0));
}

}  // namespace match_test
