#include "formats/analysis/gpu_statistics.h"

#include <algorithm>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// Spans may overlap in any way.
int64_t length_of_union(std::vector<std::pair<int64_t, int64_t>>& spans) {
  std::ranges::sort(spans);
  int64_t length = 0, until = INT64_MIN;
  for (const auto& [begin, end] : spans) {
    if (end <= until) continue;
    add_to(length, difference(end, std::max(begin, until)));
    until = end;
  }
  return length;
}

}  // namespace

GpuTally& GpuTally::operator+=(const GpuTally& other) {
  min_ns = calls == 0 ? other.min_ns : other.calls == 0 ? min_ns : std::min(min_ns, other.min_ns);
  max_ns = std::max(max_ns, other.max_ns);
  calls += other.calls;
  add_to(total_ns, other.total_ns);
  is_kernel = is_kernel || other.is_kernel;
  blocks_per_sm += other.blocks_per_sm;
  occupancy += other.occupancy;
  return *this;
}

GpuStatistics& GpuStatistics::operator+=(const GpuStatistics& other) {
  for (const auto& [name, tally] : other.work) work[name] += tally;
  return *this;
}

void GpuCollector::add(const GpuWork& w) {
  if (w.name >= tallies_.size()) tallies_.resize(std::max<size_t>(w.name + 1, tallies_.size() * 2));
  const int64_t ns = difference(w.end, w.begin);
  tallies_[w.name] += {.calls = 1,
                       .total_ns = ns,
                       .min_ns = ns,
                       .max_ns = ns,
                       .is_kernel = w.is_kernel,
                       .blocks_per_sm = w.blocks_per_sm,
                       .occupancy = w.occupancy};
  Device& device = devices_[w.device];
  device.spans.emplace_back(w.begin, w.end);
  ++(w.is_kernel ? device.use.kernels : device.use.copies);
  add_to(w.is_kernel ? device.use.kernel_ns : device.use.copy_ns, ns);
}

GpuStatistics GpuCollector::finish(int64_t captured_ns, const std::function<std::string_view(uint32_t)>& text) {
  GpuStatistics result;
  for (uint32_t name = 0; name < tallies_.size(); ++name)
    if (tallies_[name].calls != 0) result.work[std::string(text(name))] += tallies_[name];
  for (auto& [number, device] : devices_) {
    device.use.device = number;
    device.use.captured_ns = captured_ns;
    device.use.busy_ns = length_of_union(device.spans);
    device.spans = {};
    result.devices.push_back(std::move(device.use));
  }
  return result;
}

}  // namespace torchprof::formats
