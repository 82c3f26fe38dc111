// Which processes `torchprof attach` is about.
#pragma once

#include <cstdint>
#include <vector>

namespace torchprof::launcher {

// What it has started, and what those have, as far as it runs Python; itself not.
std::vector<uint32_t> python_children(uint32_t pid);

// The ranks of its job on this machine: processes whose environment has a RANK and the same MASTER_ADDR and MASTER_PORT
// as its own, or as that of what it has started (torchrun). A rank's own workers are none. Empty: it is no such job.
std::vector<uint32_t> ranks_of_job(uint32_t pid);

}  // namespace torchprof::launcher
