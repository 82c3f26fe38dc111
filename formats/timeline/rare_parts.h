// What is part of some steps alone: evaluations, checkpoints, logging each Nth step, by the calls that only these have.
//
//   part    an outermost call that two steps have and less than half of them, or that these make far more often (as in
//           a rollout); also in calls that most have. By path: the calls around it within the step and its name. A
//           function of Python, a module's call or a range. Imports are none. Nor is what steps in a row have: that is
//           a phase of the program (a fold, a pre-training), and the work itself
//   step    one that the timeline holds. Of a run in windows those that were unusual may not be among them
//
// Costs: one pass over the spans of the steps, 16 bytes for each call of a step by name.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

struct RarePart {
  uint32_t row = 0;  // of its longest call
  uint32_t span = 0;
  uint64_t steps = 0;     // that have it
  uint64_t of_steps = 0;  // of so many
  uint64_t every = 0;     // they come at this distance, by their numbers; 0: at none
  uint64_t calls = 0;     // in a step that has it, the median
  int64_t median_ns = 0;  // of what it takes in a step that has it
  int64_t all_ns = 0;
};

// Those that take `least` of the steps' time or more, 0 to 1; the largest first.
std::vector<RarePart> rare_parts_of(const Timeline& timeline, double least = 0.01);

}  // namespace torchprof::formats
