// Where a process stands among those of a distributed program: facts of the recorder, by preference what
// torch.distributed says (tracer/python/groups.h), what collectives say (tracer/torch/comms.h), the environment. A
// hostile fact gives less.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct ProcessGroup {
  std::string name, description, backends;
  int64_t size = 0;
  std::vector<int64_t> ranks;  // global ones; empty: not recorded
};

struct Distributed {
  std::optional<int64_t> rank, world_size;  // rank: if this is empty, nothing is known
  std::string backend;
  std::string source;                // where torch.distributed was not seen: for people, what the rank is from
  std::vector<ProcessGroup> groups;  // the default group first
};

Distributed distributed_of(const Process& process);

// "0-3,8-14/2": runs of numbers, those with a step behind the slash. Nothing for what is not of that form, or more than
// kMaxRanks.
inline constexpr size_t kMaxRanks = 1'000'000;
std::vector<int64_t> ranks_of(std::string_view runs);

// The value of Kineto's `distributedInfo`, in one line, as torch.profiler writes it; empty if no rank is known. HTA
// wants a space between "rank": and its number.
std::string distributed_json(const Distributed& distributed);

}  // namespace torchprof::formats
