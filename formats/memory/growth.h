// Memory that stays: what the steps of a program leave behind, one after the other.
//
//   stays   a block that was allocated in a step and lives at the end of the last one, kGrowthAge steps later or more
//   grows   an owner (formats/memory/memory.h) whose blocks stay from kFewestSteps steps or more, and from the later half of
//           the steps that could leave some half as many bytes as from the earlier half at least: not what the first
//           steps make once, nor a cache that is full, nor cycles that Python's collector has not come to
//
// The first step and the last kGrowthAge ones are not looked at; a process of fewer steps than that and kFewestSteps
// has nothing to say. Nor has one of several windows: what is freed between them is not recorded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/memory/memory.h"
#include "formats/replay/step_samples.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kGrowthAge = 2;
inline constexpr size_t kFewestSteps = 3;

struct MemoryGrowth {
  int8_t device_type = 0;
  int8_t device_index = -1;
  OwnerText owner;
  int64_t bytes = 0;  // that stay
  uint64_t blocks = 0;
  uint64_t steps = 0;   // that left some of them
  uint64_t looked = 0;  // that could have
};

// The most bytes first. A replay of its own. Memory: the live blocks.
std::vector<MemoryGrowth> growth_of(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
