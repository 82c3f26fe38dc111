// What the launchers of distributed programs tell each process by environment variables: torchrun and scripts, or Open
// MPI's mpirun (its manual, "Exported Environment Variables"). A process records the numbers as facts of these names;
// the part after kEnvironmentFact is the variable's name.
#pragma once

#include <string_view>

namespace torchprof {

struct RankFacts {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
inline constexpr RankFacts kRankFacts[] = {
    {"environment.RANK", "environment.WORLD_SIZE", "environment.LOCAL_RANK"},
    {"environment.OMPI_COMM_WORLD_RANK", "environment.OMPI_COMM_WORLD_SIZE", "environment.OMPI_COMM_WORLD_LOCAL_RANK"},
};
inline constexpr std::string_view kEnvironmentFact = "environment.";

}  // namespace torchprof
