// What captured steps of a long run did that its typical steps do not.
//
//   typical   captured in full, and not slow: the last 400 of them
//   function  the Python function in which a group of steps spent what they took longer than typical ones: of those
//             with seven tenths of the most, one that typical steps do not have, or the one that they have least of.
//             None if it has less than a fifth of it, or grew no more than the step as a whole
//   even      functions only grew as the step did: all of it took longer, as on a busy machine
//   shapes    "aten::addmm [[192],[1536,64],[64,192]], typical [[192],[512,64],[64,192]]": the operator with the most
//             time of its own in shapes that no typical step has, and the most similar ones of typical steps. None if
//             such shapes have less than half of the operators' time
//
// A step may have been captured in part; its part is compared with as much of a typical step. A part counts from a
// twentieth of the step or 10 ms on. Times in ns. Replays the process once, if a step of a group was captured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// The steps of a process whose time is known. Refers to the process's own: a run of weeks has millions.
class TimedSteps {
 public:
  explicit TimedSteps(std::span<const StepTime> all) : all_(all) {
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].ns > 0) places_.push_back(static_cast<uint32_t>(i));
  }
  size_t size() const { return places_.size(); }
  const StepTime& operator[](size_t i) const { return all_[places_[i]]; }

 private:
  std::span<const StepTime> all_;
  std::vector<uint32_t> places_;
};

struct StepDifference {
  uint64_t captured = 0;   // so many of them were captured, wholly or in such a part
  std::string function{};  // empty: not known
  int64_t more_ns = 0;     // what they spent longer in it, on average
  bool is_even = false;
  std::string shapes{};  // empty: as in typical steps, or not known
};

// One for each group, which is indices into `steps`.
std::vector<StepDifference> step_differences(const Process& process, const TimedSteps& steps,
                                             const std::vector<bool>& is_slow,
                                             const std::vector<std::vector<size_t>>& groups);

}  // namespace torchprof::formats
