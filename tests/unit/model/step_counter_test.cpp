#include "tracer/spool/step_counter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace step_counter_test {

using namespace torchprof;

namespace {

using Ended = StepCounter::Ended;

constexpr int64_t kMs = 1'000'000;

// The steps that end with these requesters' steps: for each step the indices of those that are its parts. A step takes
// a millisecond; each requester has a thread of its own, or all are on one.
std::vector<std::vector<size_t>> steps_of(const std::vector<uint64_t>& requesters, bool has_threads = false) {
  const auto counter = std::make_unique<StepCounter>();
  std::vector<std::vector<size_t>> steps;
  for (size_t i = 0; i < requesters.size(); ++i) {
    switch (counter->ended(requesters[i], has_threads ? requesters[i] : 7, static_cast<int64_t>(i) * kMs)) {
      case Ended::kBehind:
        break;
      case Ended::kSplit:
        steps.back().pop_back();
        steps.push_back({i - 1});
        steps.push_back({i});
        break;
      case Ended::kNew:
        steps.push_back({i});
        break;
      case Ended::kPart:
        steps.back().push_back(i);
        break;
    }
    CHECK(counter->current() == steps.size());
  }
  return steps;
}

size_t count_of(const std::vector<uint64_t>& requesters, bool has_threads = false) {
  return steps_of(requesters, has_threads).size();
}

std::vector<uint64_t> times(size_t n, const std::vector<uint64_t>& iteration) {
  std::vector<uint64_t> all;
  for (size_t i = 0; i < n; ++i) all.insert(all.end(), iteration.begin(), iteration.end());
  return all;
}

// The rule of torch's KinetoStepTracker, with the first step of a new requester as we take it; any number of them.
class Model {
 public:
  uint64_t ended(uint64_t requester, bool is_first) {
    const bool is_new = !counts_.contains(requester) || (is_first && counts_[requester] + 1 < current);
    uint64_t& count = counts_[requester];
    if (is_new)
      count = std::max<uint64_t>(1, current);
    else
      count = std::max(count, current - std::min(current, StepCounter::kMostBehind)) +
              (last_was_new_ && last_ == requester ? 2 : 1);
    last_was_new_ = is_new && current > 0;
    last_ = requester;
    current = std::max(current, count);
    return count;
  }
  // Whether all that ended the step before have ended this one.
  bool is_complete(bool was_split) const {
    return was_split || std::ranges::none_of(counts_, [this](const auto& c) { return c.second + 1 == current; });
  }
  uint64_t current = 0;

 private:
  std::map<uint64_t, uint64_t> counts_;
  uint64_t last_ = 0;
  bool last_was_new_ = false;
};

}  // namespace

TEST_CASE("of optimizers that step together an iteration is a step, however many there are") {
  for (const size_t optimizers : {1u, 2u, 3u, 64u, 65u, 300u, 2000u}) {
    std::vector<uint64_t> iteration;
    for (size_t i = 0; i < optimizers; ++i) iteration.push_back(i * 0x1234567 + 1);
    CHECK(count_of(times(10, iteration)) == 10);
  }
}

TEST_CASE("optimizers that are made anew in some iterations step as those that stay") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const unsigned optimizers = 1 + random() % 9, anew = 1 + random() % 5;
    const auto counter = std::make_unique<StepCounter>();
    for (int iteration = 1; iteration <= 50; ++iteration) {
      for (uint64_t i = 1; i <= optimizers; ++i) counter->ended(i * 77, 7, iteration * kMs, random() % anew == 0);
      REQUIRE(counter->current() == iteration);
      REQUIRE(counter->is_complete());
    }
  }
}

TEST_CASE("what replaces an optimizer that has long been left behind takes part in the current step") {
  const auto counter = std::make_unique<StepCounter>();
  for (int round = 0; round < 100; ++round)  // two that take turns, each new in its turn, as an address is used again
    for (int i = 0; i < 5; ++i) counter->ended(1 + round % 2, 7, round * kMs, i == 0);
  CHECK(counter->current() == 500);
}

TEST_CASE("of a critic that steps five times and a generator the critic's are the steps") {
  CHECK(count_of(times(100, {1, 1, 1, 1, 1, 2})) == 500);
}

TEST_CASE("an optimizer per task steps five times in each, and none of these is lost or joined to the task before") {
  std::vector<uint64_t> all;
  for (uint64_t task = 0; task < 800; ++task)
    for (const uint64_t requester : {task + 10, task + 10, task + 10, task + 10, task + 10, uint64_t{1}})
      all.push_back(requester);
  const auto steps = steps_of(all);
  CHECK(steps.size() == 4000);
  for (size_t i = 0; i < steps.size(); ++i) CHECK(steps[i][0] == i / 5 * 6 + i % 5);
}

TEST_CASE("where an optimizer goes on alone its steps count soon, however often another one stepped before") {
  std::vector<uint64_t> all = times(1000, {1, 1, 1, 1, 1, 2});
  const size_t before = count_of(all);
  all.resize(all.size() + 1000, 2);
  CHECK(count_of(all) >= before + 1000 - StepCounter::kMostBehind);
  CHECK(count_of(all) < before + 1000);
}

TEST_CASE("threads that have an optimizer each and the same pace make the steps of one of them") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const size_t steps = 1000 + random() % 1000, most_share = 1 + random() % 400;
    const uint64_t threads = 2 + random() % 4;
    std::vector<size_t> left(threads, steps);
    std::vector<uint64_t> all;
    uint64_t last = threads;
    while (std::ranges::any_of(left, [](size_t n) { return n > 0; })) {  // each has the processor in turns
      const uint64_t thread = random() % threads;
      // At the begin they have no more than the last of them has left.
      const size_t share = std::min(left[thread], 1 + random() % (all.size() < steps / 2 ? 20 : most_share));
      if (share == 0 || thread == last) continue;
      last = std::ranges::count(left, size_t{0}) + 1 == static_cast<std::ptrdiff_t>(threads) ? threads : thread;
      left[thread] -= share;
      all.resize(all.size() + share, thread + 1);
    }
    CHECK(count_of(all, true) == steps);
  }
}

TEST_CASE("threads that train one after the other make the steps of both") {
  std::vector<uint64_t> all(500, 1);
  all.resize(800, 2);
  all.resize(1000, 3);
  CHECK(count_of(all, true) == 1000);
}

TEST_CASE("where another thread's optimizer goes on alone its steps count after a while") {
  // The first has made a thousand when it ends, the second one a hundred.
  std::vector<uint64_t> all;
  for (int i = 0; i < 100; ++i) {
    all.resize(all.size() + 10, 1);
    all.push_back(2);
  }
  all.resize(all.size() + 5000, 2);
  const size_t steps = count_of(all, true), late = StepCounter::kAlone / kMs + StepCounter::kMostBehind;
  CHECK(steps >= 1000 + 5000 - late);
  CHECK(steps < 1000 + 5000);
}

TEST_CASE("threads with an optimizer for each of their tasks go on being counted") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const size_t at_once = 2 + random() % 4;
    std::vector<std::pair<uint64_t, int>> tasks;  // requester, and how many steps it has left
    std::vector<uint64_t> all;
    uint64_t next = 1;
    for (int i = 0; i < 4000; ++i) {
      while (tasks.size() < at_once) tasks.emplace_back(next++, 5);
      auto& task = tasks[random() % at_once];
      all.push_back(task.first);
      if (--task.second == 0) tasks.erase(tasks.begin() + (&task - tasks.data()));
    }
    CHECK(count_of(all, true) > all.size() / at_once / 3);
  }
}

TEST_CASE("any sequence of requesters: the counts are those of the rule, and every step has an end of its own") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const unsigned many = 1 + random() % (seed % 3 == 0 ? 500 : 6), again = random() % 4;
    Model model;
    const auto counter = std::make_unique<StepCounter>();
    std::vector<uint64_t> all;
    uint64_t requester = 1;
    for (int i = 0; i < 2000; ++i) {
      if (random() % (again + 1) == 0) requester = 1 + random() % many * 77;
      all.push_back(requester);
      const bool is_first = seed % 2 == 1 && random() % 8 == 0;  // of an optimizer that has replaced another
      const uint64_t before = model.current, count = model.ended(requester, is_first);
      const Ended ended = counter->ended(requester, 7, i * kMs, is_first);
      REQUIRE(counter->current() == model.current);
      const Ended expected = count > before + 1 ? Ended::kSplit
                             : count > before   ? Ended::kNew
                             : count == before  ? Ended::kPart
                                                : Ended::kBehind;
      REQUIRE(ended == expected);
      REQUIRE(counter->is_complete() == model.is_complete(ended == Ended::kSplit));
    }
    const auto steps = steps_of(all);
    size_t last = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      REQUIRE(!steps[i].empty());
      REQUIRE((i == 0 || steps[i].front() > last));
      last = steps[i].back();
    }
  }
}

TEST_CASE("a count goes on from where another one has ended, with requesters that are all new") {
  StepCounter counter;
  for (int i = 0; i < 5; ++i) counter.ended(7, 1, i);
  counter.start_at(100);
  CHECK(counter.current() == 100);
  CHECK(counter.ended(7, 1, 5) == Ended::kPart);
  CHECK(counter.ended(7, 1, 6) == Ended::kSplit);
  CHECK(counter.current() == 102);
}

}  // namespace step_counter_test
