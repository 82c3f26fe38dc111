// What the thread that runs the program did in each step: how long it was on a processor, ready to run without one, and
// asleep. From the totals that the recorder read at the ends of steps (analysis/step_use.h): where an interval has
// several steps each has its share by length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/advice/step_view.h"

namespace torchprof::formats {

struct ThreadUse {
  std::vector<int64_t> queued{}, slept{};  // by step, in ns
  std::vector<bool> is_known{};            // by step
  double queued_share = 0;                 // of the time of known steps; they are not alike on a busy machine
  double process_ran = 0;                  // processors that the process kept busy, over the steps that are known
  std::optional<double> others_ran{};      // processors that all others kept busy meanwhile
  uint32_t processors = 0;                 // of the machine; 0: not known
  uint32_t operator_threads = 0;           // the most among which torch divided an operator; 0: not known

  std::optional<int64_t> looked_queued{};  // of a typical step, by looks, where fewer than half of the steps are known

  // Medians over known steps; nothing where fewer than half of the steps are known, of `queued` what looks tell.
  std::optional<int64_t> typical_queued() const;
  std::optional<int64_t> typical_slept() const;
};

ThreadUse thread_use_of(const StepView& view);

// What the main row did, without waits, as a share of the time in which it was recorded.
double busy_share_of(const StepView& view);

}  // namespace torchprof::formats
