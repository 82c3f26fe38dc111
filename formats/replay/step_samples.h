// What each step of a process spent, by name: the samples that a comparison of two runs tests (formats/diff/diff.h).
//
//   step    a counted one (formats/replay/steps.h) without the first ones, in which a program warms up
//   sample  self time that began in the step, in ns; of GPUs the time of what began to run in it. What was going on
//   when
//           the step began belongs to none, and so does what lies between steps
//
// Memory: names times samples. A run of more than kMostSamples steps has the averages of groups of neighbours instead,
// each of equally many steps but the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torchprof::formats {

struct StepSpan {
  int64_t begin;  // ns, of any clock
  int64_t end;
  uint64_t number = 0;
};

enum class Sampled : uint8_t { kOperator, kPython, kModule, kKernel };  // modules: forward and backward
inline constexpr size_t kSampledKinds = 4;
inline constexpr size_t kMostSamples = 512;

struct Samples {
  std::vector<double> ns;  // for each sample, 0 where it did not run
  uint64_t calls = 0;      // in all steps together
  uint64_t allocated = 0;  // operators, modules: bytes that they asked for themselves, in all steps together
};

struct StepSamples {
  std::vector<double> step_ns;  // duration of each sample's steps; the size of every Samples::ns
  uint64_t steps = 0;           // behind the samples
  std::unordered_map<std::string, Samples> by_name[kSampledKinds];
  // Of another process: its steps are samples of their own.
  StepSamples& operator+=(const StepSamples& other);
  std::unordered_map<std::string, Samples>& of(Sampled kind) { return by_name[static_cast<size_t>(kind)]; }
  const std::unordered_map<std::string, Samples>& of(Sampled kind) const { return by_name[static_cast<size_t>(kind)]; }
};

class StepSampler {
 public:
  // Steps that overlap an earlier one are left out, and so are the first `warmup` of them.
  StepSampler(std::vector<StepSpan> steps, size_t warmup);
  // `name`: a small dense number of the caller's choice for each kind.
  void time(Sampled kind, uint32_t name, int64_t begin, int64_t ns, uint64_t calls = 1);
  void allocated(Sampled kind, uint32_t name, int64_t time, uint64_t bytes);
  using Text = std::function<std::string(Sampled, uint32_t)>;
  StepSamples finish(const Text& text);

 private:
  // Index of the step that was going on then; steps_.size(): none.
  size_t step_at(int64_t time);
  Samples& named(Sampled kind, uint32_t name);

  std::vector<StepSpan> steps_;
  size_t group_ = 1;  // steps a sample
  size_t last_ = 0;
  std::vector<Samples> named_[kSampledKinds];
};

}  // namespace torchprof::formats
