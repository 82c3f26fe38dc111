// The sampler's budget, with made-up rounds: it is kept whatever rounds take, and what was dear once brings no long
// pauses for good.
#include "tracer/sampler/look_budget.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>

namespace look_budget_test {

using torchprof::sampler::LookBudget;

namespace {

constexpr int64_t kMs = 1'000'000, kPeriod = 20 * kMs;

// Rounds that take what `cost` says after a pause.
class Rounds {
 public:
  explicit Rounds(int64_t part) : part_(part) { budget_.begin(now_, used_); }
  int64_t run(int64_t until, const std::function<int64_t(int64_t pause)>& cost) {
    int64_t rounds = 0;
    for (; now_ < until; ++rounds) {
      const int64_t pause = budget_.pause_after_round(now_, used_, kPeriod, part_);
      longest_ = std::max(longest_, pause);
      const int64_t took = cost(pause);
      now_ += pause + took;
      used_ += took;
      most_ = std::max(most_, took);
      // Never more than a part of all the time, what may be taken at once, and what eighths leave of it: eight rounds.
      CHECK(used_ <= now_ / part_ + LookBudget::kAtOnce + 8 * most_);
    }
    return rounds;
  }
  int64_t now() const { return now_; }
  int64_t longest() const { return longest_; }

 private:
  LookBudget budget_;
  int64_t part_, now_ = 0, used_ = 0, most_ = 0, longest_ = 0;
};

}  // namespace

TEST_CASE("a budget is kept, whatever rounds take") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto some = [&](int64_t least, int64_t most) { return std::uniform_int_distribution(least, most)(random); };
    const int64_t part = some(1, 100), most = some(1'000, 20 * kMs);
    Rounds rounds(part);
    // Now dear, now cheap.
    for (int i = 1; i <= 10; ++i) {
      const int64_t here = some(1'000, most);
      rounds.run(rounds.now() + 1'000 * kMs, [&](int64_t) { return some(here / 2, here); });
    }
  }
}

TEST_CASE("rounds are as many as wanted where they are cheap at that rate, though they are dear after long pauses") {
  const auto cold = [](int64_t pause) { return pause > 2 * kPeriod ? pause / 200 + kMs : 100'000; };
  Rounds rounds(100);
  int first = 10;  // that meet all functions
  const int64_t made = rounds.run(10'000 * kMs, [&](int64_t pause) { return first-- > 0 ? 4 * kMs : cold(pause); });
  CHECK(made >= 10'000 * kMs / (kPeriod + 2 * kMs));
  CHECK(rounds.longest() == kPeriod);
}

TEST_CASE("after a long time without a round no more is taken at once than in the beginning") {
  Rounds rounds(100);
  rounds.run(3'600'000 * kMs, [](int64_t) { return int64_t{1'000}; });
  const int64_t begin = rounds.now();
  const int64_t made = rounds.run(begin + 10'000 * kMs, [](int64_t) { return 5 * kMs; });
  CHECK(made <= 10'000 / 5 / 100 + LookBudget::kAtOnce / (5 * kMs) + 8);  // which eighths leave
}

}  // namespace look_budget_test
