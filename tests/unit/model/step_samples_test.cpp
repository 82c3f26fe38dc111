#include "formats/replay/step_samples.h"

#include <doctest/doctest.h>

namespace step_samples_test {

using namespace torchprof::formats;

namespace {

std::vector<StepSpan> steps_of(size_t n) {
  std::vector<StepSpan> steps;
  for (size_t i = 0; i < n; ++i) {
    const auto begin = static_cast<int64_t>(i) * 100;
    steps.push_back({begin, begin + 90});
  }
  return steps;
}

std::string text(Sampled, uint32_t name) { return "op" + std::to_string(name); }

}  // namespace

TEST_CASE("time goes to the step in which it began; the first and what lies between go nowhere") {
  StepSampler sampler(steps_of(4), 1);
  sampler.time(Sampled::kOperator, 1, 50, 7);    // warmup
  sampler.time(Sampled::kOperator, 1, 189, 10);  // the end is beyond the step's
  sampler.time(Sampled::kOperator, 1, 195, 1000);
  sampler.time(Sampled::kOperator, 1, 300, 20);
  sampler.time(Sampled::kOperator, 1, 100, 1);  // not in order
  sampler.time(Sampled::kOperator, 1, 390, 1000);
  sampler.allocated(Sampled::kOperator, 1, 250, 64);
  sampler.allocated(Sampled::kOperator, 1, 999, 64);
  const StepSamples samples = sampler.finish(text);
  CHECK(samples.steps == 3);
  CHECK(samples.step_ns == std::vector<double>{90, 90, 90});
  const Samples& op = samples.of(Sampled::kOperator).at("op1");
  CHECK(op.ns == std::vector<double>{11, 0, 20});
  CHECK(op.calls == 3);
  CHECK(op.allocated == 64);
}

TEST_CASE("a long run has averages of neighbours") {
  constexpr size_t kSteps = 3 * kMostSamples + 1;
  StepSampler sampler(steps_of(kSteps), 0);
  for (size_t i = 0; i < kSteps; ++i)
    sampler.time(Sampled::kKernel, 3, static_cast<int64_t>(i) * 100, static_cast<int64_t>(i % 4) * 4);
  const StepSamples samples = sampler.finish(text);
  CHECK(samples.steps == kSteps);
  CHECK(samples.step_ns.size() == kSteps / 4 + 1);
  CHECK(samples.step_ns.back() == 90);
  const Samples& kernel = samples.of(Sampled::kKernel).at("op3");
  CHECK(kernel.ns.front() == 6);
  CHECK(kernel.ns.back() == 0);
  CHECK(kernel.calls == kSteps);
}

TEST_CASE("steps of two processes are samples of their own, also of what only one runs") {
  StepSampler one(steps_of(2), 0), two(steps_of(3), 0);
  one.time(Sampled::kOperator, 1, 0, 5);
  two.time(Sampled::kOperator, 2, 200, 6);
  StepSamples sum = one.finish(text);
  sum += two.finish(text);
  CHECK(sum.steps == 5);
  CHECK(sum.of(Sampled::kOperator).at("op1").ns == std::vector<double>{5, 0, 0, 0, 0});
  CHECK(sum.of(Sampled::kOperator).at("op2").ns == std::vector<double>{0, 0, 0, 0, 6});
}

TEST_CASE("fewer steps than warm up, and none") {
  for (const size_t steps : {size_t{0}, size_t{2}}) {
    StepSampler sampler(steps_of(steps), 5);
    sampler.time(Sampled::kOperator, 1, 10, 5);
    const StepSamples samples = sampler.finish(text);
    CHECK(samples.steps == 0);
    CHECK(samples.of(Sampled::kOperator).empty());
  }
}

}  // namespace step_samples_test
