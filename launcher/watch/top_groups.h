// The ranks of a job of many processes, in `torchprof top`: which are slow, and which behave alike. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/watch/top_picture.h"

namespace torchprof::launcher {

// ns, of the latest steps; 0: there were none.
int64_t mean_step(const formats::LiveView& view);
// The part of its time that it spent in collectives, 0..1; negative: there were none.
double waiting_share(const formats::LiveView& view);

struct RankGroup {
  std::vector<size_t> members;  // indexes of processes; ranks from the slowest on
  std::string name;             // "1,023 ranks", "12 DataLoader workers"
  std::string where;            // "of 128 hosts: 0-766, 768-1023"; empty: they are no ranks
};

// Those that count (live ones where there are any), the slowest first: where collectives take part of the time the
// ranks that spend least in them, since the others wait for those, otherwise the ones with the longest steps.
std::vector<size_t> slowest_first(const std::vector<TopProcess>& processes);

// `order`: of slowest_first(). Ranks next to each other that differ by no more than a tenth (of their time where they
// wait, otherwise of a step) are a group; where those are more than kMostGroups, by more. Then a group of the ranks
// that have no steps, of workers, and of all others.
inline constexpr size_t kMostGroups = 5;
std::vector<RankGroup> groups_of_ranks(const std::vector<TopProcess>& processes, const std::vector<size_t>& order);

}  // namespace torchprof::launcher
