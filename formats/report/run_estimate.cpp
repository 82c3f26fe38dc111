#include "formats/report/run_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/trace/windows.h"

namespace torchprof::formats {
namespace {

// Critical values of Student's t, two-sided, 95 %, by degrees of freedom. Source: NIST/SEMATECH e-Handbook of
// Statistical Methods, 1.3.6.7.2. Beyond the table it is 1.960 + 2.4 / freedom, to 0.002.
double students_t(size_t freedom) {
  constexpr std::array<double, 30> kValues = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                              2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                              2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return freedom <= kValues.size() ? kValues[freedom - 1] : 1.960 + 2.4 / static_cast<double>(freedom);
}

}  // namespace

Estimate estimate_of(const std::vector<double>& values, const std::vector<uint32_t>& clusters) {
  struct Sums {
    double size = 0, value = 0;
  };
  std::vector<Sums> sums;
  Sums all;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i == 0 || clusters[i] != clusters[i - 1]) sums.emplace_back();
    for (Sums* s : {&sums.back(), &all}) {
      s->size += 1;
      s->value += values[i];
    }
  }
  if (sums.empty()) return {};
  Estimate estimate{all.value / all.size};
  const auto count = static_cast<double>(sums.size());
  if (sums.size() < 2) return estimate;
  double squares = 0;
  for (const Sums& s : sums) squares += std::pow(s.value - s.size * estimate.mean, 2);
  estimate.error = students_t(sums.size() - 1) * std::sqrt(count / (count - 1) * squares) / all.size;
  return estimate;
}

std::vector<uint32_t> clusters_of(const Process& process, const StepSamples& samples) {
  constexpr size_t kLong = 8, kShortest = 4, kMostOfWindow = 16;
  // By the end of a step: the window of the step before may reach some microseconds into it.
  const auto window_of = [&](size_t i) { return window_after(process, samples.ends[i] - 1); };
  std::vector<uint32_t> clusters(samples.ends.size());
  uint32_t cluster = 0;
  for (size_t begin = 0, end = 0; begin < clusters.size(); begin = end) {
    while (end < clusters.size() && window_of(end) == window_of(begin)) ++end;
    const size_t length = end - begin;
    const size_t part = length <= kLong ? length : std::max(kShortest, (length + kMostOfWindow - 1) / kMostOfWindow);
    for (size_t i = begin; i < end; ++i) clusters[i] = cluster + static_cast<uint32_t>((i - begin) / part);
    cluster = clusters[end - 1] + 1;
  }
  return clusters;
}

}  // namespace torchprof::formats
