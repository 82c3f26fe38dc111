#include "formats/diff/rank_test.h"

#include <doctest/doctest.h>

#include <random>

namespace rank_test_test {

using namespace torchprof::formats;

TEST_CASE("p is exact where there are few values and no ties") {
  CHECK(rank_test({1, 2, 3}, {4, 5, 6}) == doctest::Approx(2.0 / 20));
  CHECK(rank_test({1, 2, 3, 4, 5}, {10, 11, 12, 13, 14}) == doctest::Approx(2.0 / 252));
  // As R's wilcox.test and SciPy's mannwhitneyu have it.
  CHECK(rank_test({19, 22, 16, 29, 24}, {20, 11, 17, 12}) == doctest::Approx(1.0 / 9));
  CHECK(rank_test({20, 11, 17, 12}, {19, 22, 16, 29, 24}) == doctest::Approx(1.0 / 9));
}

TEST_CASE("many values or ties: the normal distribution") {
  std::vector<double> low, high;
  for (int i = 0; i < 100; ++i) low.push_back(i), high.push_back(i + 30);
  CHECK(rank_test(low, high) < 1e-6);
  CHECK(rank_test(low, low) == doctest::Approx(1));
  CHECK(rank_test({5, 5, 5}, {5, 5, 5, 5}) == 1);
  // U = 1.5 of 16 with a pair of ties: z = (8 - 1.5 - 0.5) / sqrt(16 / 12 * (9 - 6 / 56)).
  CHECK(rank_test({1, 2, 3, 5}, {4, 5, 7, 8}) == doctest::Approx(0.08143).epsilon(0.001));
}

TEST_CASE("the exact way and the normal one agree where they meet") {
  std::vector<double> a, b;
  for (int i = 0; i < 20; ++i) a.push_back(i * 1.5), b.push_back(i * 1.5 + 5.2);
  const double exact = rank_test(a, b);
  a.push_back(a.back());  // a tie
  CHECK(rank_test(a, b) == doctest::Approx(exact).epsilon(0.3));
}

TEST_CASE("the same distribution is told apart as seldom as p says") {
  std::mt19937 random(1);
  std::lognormal_distribution<double> times(0, 1);
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> a(12), b(15);
    for (double& value : a) value = times(random);
    for (double& value : b) value = times(random);
    found += rank_test(a, b) <= 0.05;
  }
  CHECK(found < 2000 * 0.07);
  CHECK(found > 2000 * 0.03);
}

TEST_CASE("nothing to compare is no difference") {
  CHECK(rank_test({}, {1, 2}) == 1);
  CHECK(holm({}).empty());
}

TEST_CASE("Holm: the least p counts for all tests, the next for one fewer, in their order") {
  const std::vector<double> p = holm({0.01, 0.04, 0.03, 0.9});
  CHECK(p[0] == doctest::Approx(0.04));
  CHECK(p[2] == doctest::Approx(0.09));
  CHECK(p[1] == doctest::Approx(0.09));  // never less than one before it
  CHECK(p[3] == doctest::Approx(0.9));
}

TEST_CASE("median") {
  CHECK(median({}) == 0);
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
}

}  // namespace rank_test_test
