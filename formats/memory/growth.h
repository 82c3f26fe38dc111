// Memory that stays: what the steps of a program leave behind, one after the other.
//
//   stays   a block allocated in a step and alive at the end of the last one, at least kGrowthAge steps later
//   grows   an owner (memory.h) with blocks that stay from kFewestSteps or more steps. And of these bytes the later
//           half of the steps left at least half as many as the earlier half: so it is not what the first steps make
//           once, nor a cache that is full, nor cycles that Python's collector has not reached yet
//
// The first step and the last kGrowthAge ones are not looked at. A process with fewer steps than these and kFewestSteps
// has no result, nor has one with several windows, because frees between windows are not recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/memory/memory.h"
#include "formats/replay/replay.h"
#include "formats/replay/step_samples.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kGrowthAge = 2;
inline constexpr size_t kFewestSteps = 3;

struct MemoryGrowth {
  int8_t device_type = 0;
  int8_t device_index = -1;
  OwnerText owner;
  int64_t bytes = 0;  // bytes that stay
  uint64_t blocks = 0;
  uint64_t steps = 0;   // how many steps left some of them
  uint64_t looked = 0;  // how many steps were looked at
};

// Whether an empty result says that nothing grows: it can have one, and allocations were recorded.
bool shows_growth(const Process& process, std::span<const StepSpan> steps);

// Takes part in a replay of the process; none: too few steps, or several windows. The result: largest first. Memory:
// the live blocks.
std::unique_ptr<Analysis<std::vector<MemoryGrowth>>> find_growth(const Process& process, Replay& replay,
                                                                 std::span<const StepSpan> steps);
// By a replay of its own.
std::vector<MemoryGrowth> growth_of(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
