// The rank of a process in a distributed program, and its process groups. They come from facts of the recorder, the
// first of these that exists: what torch.distributed says (tracer/python/groups.h), what collectives say
// (tracer/torch/comms.h), the environment. A fact that cannot be parsed is left out.
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
  std::optional<int64_t> rank, world_size;  // without a rank nothing is known
  std::string backend;
  std::string source;                // for people, what the rank is from; empty: torch.distributed
  std::vector<ProcessGroup> groups;  // the default group first
};

Distributed distributed_of(const Process& process);

// The numbers of "0-3,8-14/2": runs, with the step behind a slash. Empty if the text has another form, or more than
// kMaxRanks numbers.
inline constexpr size_t kMaxRanks = 1'000'000;
std::vector<int64_t> ranks_of(std::string_view runs);

// The value of Kineto's `distributedInfo`, in one line, as torch.profiler writes it; empty if no rank is known. HTA
// wants a space between "rank": and its number.
std::string distributed_json(const Distributed& distributed);

}  // namespace torchprof::formats
