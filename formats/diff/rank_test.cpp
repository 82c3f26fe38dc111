#include "formats/diff/rank_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace torchprof::formats {
namespace {

constexpr size_t kMostExact = 40;

// P(U <= u) for samples of n and m values without ties. The numbers of orders with each U are the coefficients of the
// Gaussian binomial, the product of (1 - q^(n+k)) / (1 - q^k). Those up to u do not depend on those above.
double exact_tail(size_t n, size_t m, size_t u) {
  std::vector<double> orders(u + 1);
  orders[0] = 1;
  double all = 1;
  for (size_t k = 1; k <= m; ++k) {
    for (size_t i = u + 1; i-- > n + k;) orders[i] -= orders[i - n - k];
    for (size_t i = k; i <= u; ++i) orders[i] += orders[i - k];
    all *= static_cast<double>(n + k) / static_cast<double>(k);
  }
  return std::accumulate(orders.begin(), orders.end(), 0.0) / all;
}

}  // namespace

double rank_test(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return 1;
  std::vector<std::pair<double, bool>> all;
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::ranges::sort(all);
  double ranks = 0, ties = 0;  // sum of the ranks of a; sum of t^3 - t
  for (size_t i = 0, end = 0; i < all.size(); i = end) {
    size_t of_a = 0;
    for (; end < all.size() && all[end].first == all[i].first; ++end) of_a += all[end].second;
    const auto t = static_cast<double>(end - i);
    ranks += static_cast<double>(of_a) * static_cast<double>(i + 1 + end) / 2;
    ties += t * t * t - t;
  }
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double larger = ranks - n * (n + 1) / 2, u = std::min(larger, n * m - larger);
  if (ties == 0 && all.size() <= kMostExact)
    return std::min(1.0, 2 * exact_tail(a.size(), b.size(), static_cast<size_t>(u)));
  const double variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)));
  if (variance <= 0) return 1;  // all values are equal
  return std::erfc(std::max(0.0, n * m / 2 - u - 0.5) / std::sqrt(2 * variance));
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&p](size_t i) { return p[i]; });
  std::vector<double> adjusted(p.size());
  double least = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    least = std::max(least, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
    adjusted[order[i]] = least;
  }
  return adjusted;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace torchprof::formats
