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

// The steps that end with these requesters' steps: for each step the indices of those that are its parts.
std::vector<std::vector<size_t>> steps_of(const std::vector<uint64_t>& requesters) {
  const auto counter = std::make_unique<StepCounter>();
  std::vector<std::vector<size_t>> steps;
  for (size_t i = 0; i < requesters.size(); ++i) {
    switch (counter->ended(requesters[i])) {
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

size_t count_of(const std::vector<uint64_t>& requesters) { return steps_of(requesters).size(); }

std::vector<uint64_t> times(size_t n, const std::vector<uint64_t>& iteration) {
  std::vector<uint64_t> all;
  for (size_t i = 0; i < n; ++i) all.insert(all.end(), iteration.begin(), iteration.end());
  return all;
}

// The rule of torch's KinetoStepTracker, with the first step of a new requester as we take it; any number of them.
class Model {
 public:
  uint64_t ended(uint64_t requester) {
    const bool is_new = !counts_.contains(requester);
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
  constexpr size_t kMostShare = 20;
  std::mt19937 random(1);
  std::vector<uint64_t> all;
  for (int round = 0; round < 100; ++round) {  // each has a share of the processor in turns
    const size_t share = 1 + random() % kMostShare;
    for (const uint64_t requester : {1, 2}) all.resize(all.size() + share, requester);
  }
  const auto of_one = static_cast<size_t>(std::ranges::count(all, 1u));
  CHECK(count_of(all) - of_one <= kMostShare);  // the second one began when the first had stepped so often
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
      const uint64_t before = model.current, count = model.ended(requester);
      const Ended ended = counter->ended(requester);
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
  for (int i = 0; i < 5; ++i) counter.ended(7);
  counter.start_at(100);
  CHECK(counter.current() == 100);
  CHECK(counter.ended(7) == Ended::kPart);
  CHECK(counter.ended(7) == Ended::kSplit);
  CHECK(counter.current() == 102);
}

}  // namespace step_counter_test
