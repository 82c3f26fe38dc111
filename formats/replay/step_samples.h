// The time that each step of a process spent, by name: the samples for the comparison of two runs
// (formats/diff/diff.h).
//
//   step    a counted one (steps.h), without the first ones, in which a program warms up
//   sample  self time of what began in the step, in ns; on GPUs the duration of the work that began in it, and
//           the duration of calls of CUDA. What was
//           going on already when the step began belongs to no sample, nor does anything between steps
//
// Of a run with windows of -w auto only the steps of its beginning and of typical windows are samples, and for a
// comparison its last ones. Its other steps have a duration alone (`every_ns`).
//
// Memory: names times samples. If there are more than kMostSamples steps, they are put in groups of neighbours, one
// sample each. What a name has in it is the average of the group. Durations of steps are those of one step of each
// group, so that they are distributed as all steps are, however long the run: averages move with outliers, and they
// differ the less, as medians of groups do, the larger the groups are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torchprof::formats {

struct StepSpan {
  int64_t begin;  // ns, on any clock
  int64_t end;
  uint64_t number = 0;
};

// kModule: forward and backward together; kCall: of CUDA.
enum class Sampled : uint8_t { kOperator, kPython, kModule, kKernel, kCall };
inline constexpr size_t kSampledKinds = 5;
inline constexpr size_t kMostSamples = 512;

struct Samples {
  std::vector<double> ns;  // one value a sample; 0 where it did not run
  uint64_t calls = 0;      // over all steps
  uint64_t allocated = 0;  // operators, modules: bytes that they asked for themselves, over all steps
};

struct StepSamples {
  std::vector<double> step_ns;  // duration of a step of each sample, as many as in Samples::ns
  uint64_t steps = 0;           // number of steps in all samples
  std::vector<int64_t> ends{};  // of the samples' first steps; not in a sum over processes
  // Durations of the steps of the whole run to which no window has added anything (StepTime::is_free); empty: the times
  // of steps were not taken, or the whole run was captured. If there are more than kMostSamples, one of each group.
  std::vector<double> every_ns{};
  uint64_t every_steps = 0;  // number of such steps, but for those that were captured
  std::unordered_map<std::string, Samples> by_name[kSampledKinds];
  // Adds those of another process; its steps are further samples.
  StepSamples& operator+=(const StepSamples& other);
  std::unordered_map<std::string, Samples>& of(Sampled kind) { return by_name[static_cast<size_t>(kind)]; }
  const std::unordered_map<std::string, Samples>& of(Sampled kind) const { return by_name[static_cast<size_t>(kind)]; }
};

// The step of a group, [begin, end), that stands for its duration. Each group has another place for it, as if at
// random: at even distances it would always be one that does what comes at a multiple of this distance, or never.
size_t one_of(size_t group, size_t begin, size_t end);
// Durations that stand for all of these: kMostSamples at the most.
std::vector<double> durations_of(const std::vector<int64_t>& ns);

class StepSampler {
 public:
  // Steps that overlap an earlier one are left out, and then the first `warmup` steps.
  StepSampler(std::vector<StepSpan> steps, size_t warmup);
  // `name`: small dense numbers of the caller's choice, for each kind on their own.
  void time(Sampled kind, uint32_t name, int64_t begin, int64_t ns, uint64_t calls = 1);
  void allocated(Sampled kind, uint32_t name, int64_t time, uint64_t bytes);
  using Text = std::function<std::string(Sampled, uint32_t)>;
  StepSamples finish(const Text& text);

 private:
  // Index of the step at that time; steps_.size(): none.
  size_t step_at(int64_t time);
  Samples& named(Sampled kind, uint32_t name);

  std::vector<StepSpan> steps_;
  size_t group_ = 1;  // steps in a sample
  size_t last_ = 0;
  std::vector<Samples> named_[kSampledKinds];
};

}  // namespace torchprof::formats
