// Which annotations open a window for the first step of a training.
#include "tracer/plan/first_signs.h"

#include <doctest/doctest.h>

#include <random>

namespace first_signs_test {

using namespace torchprof;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kZeroGrad = 1, kLoader = 2, kFirstOfProgram = 100;

TEST_CASE("a sign opens a window, and no other one while it counts as none") {
  FirstSigns signs;
  signs.begin(1000, false);
  CHECK(signs.events(kLoader, false, 0) == 250);
  signs.was_none(kLoader, 250, 0);
  CHECK(signs.events(kLoader, false, kSecond / 2) == 0);
  CHECK(signs.events(kZeroGrad, true, kSecond / 2) == 375);
  CHECK(signs.events(kLoader, false, kSecond) == 187);
}

TEST_CASE("a window that was closed late leaves room for the next sign") {
  FirstSigns signs;
  signs.begin(1000, false);
  CHECK(signs.events(kLoader, false, 0) == 250);
  signs.was_none(kLoader, 100'000, 0);
  CHECK(signs.events(kZeroGrad, true, 0) == 250);
}

TEST_CASE("in a child only optimizers are signs") {
  FirstSigns signs;
  signs.begin(1000, true);
  CHECK(signs.events(kLoader, false, 0) == 0);
  CHECK(signs.events(kZeroGrad, true, 0) == 500);
}

TEST_CASE("a start full of annotations stays within the budget, and leaves room for the optimizer that comes last") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    constexpr uint64_t kBudget = 100'000;
    const uint64_t names = 1 + random() % 30, beyond = random() % 100;
    const int64_t lasts = kSecond * (1 + random() % 60);
    FirstSigns signs;
    signs.begin(kBudget, false);
    uint64_t used = 0, windows = 0;
    for (int64_t now = 0; now < lasts; now += kSecond / 200) {
      const uint64_t name = kFirstOfProgram + random() % names, part = signs.events(name, false, now);
      if (part == 0) continue;
      CHECK(part <= kBudget - used);
      signs.was_none(name, part + beyond, now);  // the window is closed a little late
      used += part;
      ++windows;
    }
    REQUIRE(windows > 0);
    CHECK(used <= kBudget);
    if (names > 1 || lasts > 30 * kSecond) CHECK(windows > 1);
    CHECK(signs.events(kZeroGrad, true, lasts) >= kBudget / 32);
  }
}

}  // namespace first_signs_test
