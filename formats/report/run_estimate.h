// What all steps of a run spent in a name, estimated from the steps that were captured (-w auto), and how far that may
// be off.
//
//   cluster   steps of one window: neighbouring steps are alike, so windows count and not steps. A window that is much
//             longer than the typical ones, as the beginning, is several clusters
//   error     of the mean: half of the interval in which it lies 95 times of 100, if the captured clusters stand for
//             all. By the ratio of sums over clusters of different sizes (W. G. Cochran, Sampling Techniques, 1977,
//             chapter 9A), and Student's t for the number of clusters
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/replay/step_samples.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Estimate {
  double mean = 0;
  std::optional<double> error{};  // none: there are fewer than two clusters
};

// Clusters are numbers that do not fall; as many as values.
Estimate estimate_of(const std::vector<double>& values, const std::vector<uint32_t>& clusters);

// Of the samples of a process with windows.
std::vector<uint32_t> clusters_of(const Process& process, const StepSamples& samples);

}  // namespace torchprof::formats
