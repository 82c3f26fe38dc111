#include "formats/advice/spread.h"

#include <algorithm>

#include "formats/advice/rules.h"
#include "formats/io/cells.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

std::string ordinal(size_t n) {
  const size_t last = n % 10, two = n % 100;
  const bool is_th = last == 0 || last > 3 || (two > 10 && two < 14);
  return std::to_string(n) + (is_th ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd");
}

}  // namespace

Spread spread_of(const std::vector<int64_t>& by_step) {
  Spread s{.steps = by_step.size()};
  if (by_step.empty()) return s;
  int64_t all = 0;
  for (const int64_t ns : by_step) add_to(all, ns);
  s.mean = all / static_cast<int64_t>(by_step.size());
  s.largest = static_cast<size_t>(std::ranges::max_element(by_step) - by_step.begin());
  // Where the median is far below the mean it is a few steps that cost: those far above it, as far as they are alike.
  const int64_t middle = median_of(by_step);
  int64_t least = std::max<int64_t>(1, middle / 4);
  if (middle < s.mean / 3) {
    std::vector<int64_t> far;
    for (const int64_t ns : by_step)
      if (ns > 3 * middle) far.push_back(ns);
    least = std::max<int64_t>(3 * middle + 1, median_of(std::move(far)) / 4);
  }
  std::vector<int64_t> those;
  std::vector<size_t> where;
  for (size_t i = 0; i < by_step.size(); ++i) {
    if (by_step[i] < least) continue;
    those.push_back(by_step[i]);
    where.push_back(i);
  }
  s.having = those.size();
  s.typical = median_of(std::move(those));
  if (where.size() < 3 || s.having == s.steps) return s;
  s.period = where[1] - where[0];
  for (size_t i = 2; i < where.size(); ++i)
    if (where[i] - where[i - 1] != s.period) s.period = 0;
  return s;
}

std::string Spread::text(const std::vector<uint64_t>& numbers) const {
  if (steps < 2 || having * 20 >= steps * 19) return {};
  if (having == 1)
    return "In 1 of " + plural(steps, "step") + " alone, step " + std::to_string(numbers[largest]) + ": " +
           ns_text(typical) + ".";
  return "In " + std::to_string(having) + " of " + plural(steps, "step") +
         (period > 1 ? " (each " + ordinal(period) + ")" : "") + ", " + ns_text(typical) + " each.";
}

bool is_unsteady(const std::vector<int64_t>& by_step, const std::vector<StepSpan>& steps) {
  constexpr size_t kFewest = 8;
  constexpr double kWhole = 1e6;
  if (by_step.size() < kFewest) return false;
  std::vector<int64_t> shares;
  for (size_t i = 0; i < by_step.size(); ++i) {
    const auto length = static_cast<double>(std::max<int64_t>(1, steps[i].end - steps[i].begin));
    shares.push_back(static_cast<int64_t>(static_cast<double>(by_step[i]) / length * kWhole));
  }
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
  const int64_t first = median_of({shares.begin(), middle}), second = median_of({middle, shares.end()});
  return std::min(first, second) < std::max(first, second) / 2;
}

}  // namespace torchprof::formats
