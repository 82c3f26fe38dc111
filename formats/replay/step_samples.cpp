#include "formats/replay/step_samples.h"

#include <algorithm>

namespace torchprof::formats {

StepSamples& StepSamples::operator+=(const StepSamples& other) {
  const size_t before = step_ns.size(), after = before + other.step_ns.size();
  for (size_t kind = 0; kind < kSampledKinds; ++kind) {
    for (const auto& [name, more] : other.by_name[kind]) {
      Samples& sum = by_name[kind][name];
      sum.ns.resize(before);
      sum.ns.insert(sum.ns.end(), more.ns.begin(), more.ns.end());
      sum.calls += more.calls;
      sum.allocated += more.allocated;
    }
    for (auto& [name, sum] : by_name[kind]) sum.ns.resize(after);
  }
  step_ns.insert(step_ns.end(), other.step_ns.begin(), other.step_ns.end());
  every_ns.insert(every_ns.end(), other.every_ns.begin(), other.every_ns.end());
  every_steps += other.every_steps;
  steps += other.steps;
  return *this;
}

size_t one_of(size_t group, size_t begin, size_t end) {
  // Fractions of multiples of the golden ratio are spread evenly over any number of places.
  const uint64_t fraction = (uint64_t{group} + 1) * 0x9e3779b97f4a7c15u >> 32;
  return begin + static_cast<size_t>(fraction * (end - begin) >> 32);
}

std::vector<double> durations_of(const std::vector<int64_t>& ns) {
  const size_t groups = std::min(ns.size(), kMostSamples);
  std::vector<double> durations;
  for (size_t i = 0; i < groups; ++i)
    durations.push_back(static_cast<double>(ns[one_of(i, i * ns.size() / groups, (i + 1) * ns.size() / groups)]));
  return durations;
}

StepSampler::StepSampler(std::vector<StepSpan> steps, size_t warmup) {
  std::ranges::stable_sort(steps, {}, &StepSpan::begin);
  for (const StepSpan& step : steps)
    if (steps_.empty() || step.begin >= steps_.back().end) steps_.push_back(step);
  steps_.erase(steps_.begin(), steps_.begin() + static_cast<ptrdiff_t>(std::min(warmup, steps_.size())));
  group_ = std::max<size_t>(1, (steps_.size() + kMostSamples - 1) / kMostSamples);
}

size_t StepSampler::step_at(int64_t time) {
  // Events come nearly in order: mostly it is the same step as last time, or the next one.
  for (size_t i = last_; i < std::min(last_ + 2, steps_.size()); ++i)
    if (steps_[i].begin <= time && time < steps_[i].end) return last_ = i;
  const auto next = std::ranges::upper_bound(steps_, time, {}, &StepSpan::begin);
  if (next == steps_.begin() || time >= std::prev(next)->end) return steps_.size();
  return last_ = static_cast<size_t>(std::prev(next) - steps_.begin());
}

Samples& StepSampler::named(Sampled kind, uint32_t name) {
  auto& list = named_[static_cast<size_t>(kind)];
  if (name >= list.size()) list.resize(std::max<size_t>(name + size_t{1}, list.size() * 2));
  Samples& samples = list[name];
  if (samples.ns.empty()) samples.ns.resize((steps_.size() + group_ - 1) / group_);
  return samples;
}

void StepSampler::time(Sampled kind, uint32_t name, int64_t begin, int64_t ns, uint64_t calls) {
  const size_t step = step_at(begin);
  if (step == steps_.size()) return;
  Samples& samples = named(kind, name);
  samples.ns[step / group_] += static_cast<double>(ns);
  samples.calls += calls;
}

void StepSampler::allocated(Sampled kind, uint32_t name, int64_t time, uint64_t bytes) {
  if (step_at(time) != steps_.size()) named(kind, name).allocated += bytes;
}

StepSamples StepSampler::finish(const Text& text) {
  StepSamples result;
  result.steps = steps_.size();
  std::vector<double> group_sizes;
  for (size_t i = 0; i < steps_.size(); i += group_) {
    const size_t end = std::min(i + group_, steps_.size());
    const StepSpan& one = steps_[one_of(i / group_, i, end)];
    group_sizes.push_back(static_cast<double>(end - i));
    result.ends.push_back(steps_[i].end);
    result.step_ns.push_back(static_cast<double>(one.end - one.begin));
  }
  const auto average = [&group_sizes](std::vector<double>& sums) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] /= group_sizes[i];
  };
  for (size_t kind = 0; kind < kSampledKinds; ++kind) {
    for (uint32_t name = 0; name < named_[kind].size(); ++name) {
      Samples& samples = named_[kind][name];
      if (samples.ns.empty()) continue;
      average(samples.ns);
      // Names with the same text are counted together.
      Samples& sum = result.by_name[kind][text(static_cast<Sampled>(kind), name)];
      sum.ns.resize(result.step_ns.size());
      for (size_t i = 0; i < samples.ns.size(); ++i) sum.ns[i] += samples.ns[i];
      sum.calls += samples.calls;
      sum.allocated += samples.allocated;
      samples = {};
    }
  }
  return result;
}

}  // namespace torchprof::formats
