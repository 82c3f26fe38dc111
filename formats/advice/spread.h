// How a cost is spread over the steps of a process: whether most of them have it, or a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

struct Spread {
  size_t steps = 0;     // all of them
  size_t having = 0;    // those that have it: most of them, or a few that cost far more than the others
  int64_t typical = 0;  // median of those that have it, in ns
  int64_t mean = 0;     // over all steps
  size_t largest = 0;   // index of the costliest step
  size_t period = 0;    // steps from one that has it to the next; 0: not regular

  // A cost that less than half of the steps have.
  bool is_rare() const { return steps > 2 && having * 2 < steps; }
  // What a finding costs a step: of a rare cost the mean, as nothing else tells what the run loses.
  int64_t cost() const { return is_rare() ? mean : having == steps || having * 20 >= steps * 19 ? typical : mean; }
  // "in each of 50 steps" is not said. "In 20 of 100 steps (each 5th), 65.1 ms each." "In step 61 alone, 1.31 s."
  // `numbers`: those of the steps, as the program counts them. Empty: most steps have it.
  std::string text(const std::vector<uint64_t>& numbers) const;
};

// `by_step`: the cost in each step.
Spread spread_of(const std::vector<int64_t>& by_step);

// Whether its share of the first half of the steps is less than half of that of the second half, or the other way
// round: what comes and goes by chance, as on a busy machine. Fewer than eight steps do not tell.
// The share is of each step's own time: where all of a step takes longer, it stays.
bool is_unsteady(const std::vector<int64_t>& by_step, const std::vector<StepSpan>& steps);

}  // namespace torchprof::formats
