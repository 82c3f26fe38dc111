// Which ranks of a large job are worth looking at: those that are asked for by number, the slowest one, and a typical
// one.
//
//   slowest   whom the others wait for: of the ranks of a job that waits in collectives the one that waited least.
//             Where ranks do not differ in that by a tenth of the time, or have no collectives, the one with the
//             longest steps
//   typical   the one in the middle of the same order
//
// Between machines whose clocks are not known to each other nobody is compared (waits.h).
//
// Replays the ranks' processes, where there are collectives. Memory: as match.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr const char *kSlowestRank = "slowest", *kTypicalRank = "typical", *kAllRanks = "all";

struct ChosenRank {
  int64_t rank;
  std::string why{};  // kSlowestRank, kTypicalRank; empty: by its number
};

// By rank, each once. `wanted`: "0,7,slowest,typical". Empty: the run has no ranks. Throws Error for what is no rank of
// the trace.
std::vector<ChosenRank> choose_ranks(const Trace& trace, std::string_view wanted);

// How many ranks there are, of all jobs, and the lowest; empty: there are none.
size_t ranks_in(const Trace& trace);
std::string lowest_rank(const Trace& trace);

// These ranks, and what works for them. `indices`: of its processes in `trace`.
Trace part_of(const Trace& trace, const std::vector<ChosenRank>& chosen, std::vector<size_t>* indices = nullptr);

// "0, 7 (slowest) and 12 (typical)"
std::string text_of(const std::vector<ChosenRank>& chosen);

}  // namespace torchprof::formats
