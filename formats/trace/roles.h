// What each process of a run is to the others (its role), for people, and the order in which they are shown.
//
// It follows from facts of the recorder (distributed_of(); tracer/python/workers.h), from the command lines that
// multiprocessing, torchrun and Inductor give their helpers, and from who started whom. A fact that cannot be parsed is
// left out.
//
// Sources of the command lines: CPython multiprocessing/{spawn,forkserver,resource_tracker}.py, 3.10 to 3.14; torch
// distributed/{run,launch}.py, 1.13 to 2.14; _inductor/compile_worker, 2.1 to 2.14.
#pragma once

#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// Fills in Process::role and Process::place. `processes` are sorted by start.
//
//   role    "rank 0", "DataLoader worker 3", "rank 1, DataLoader worker 3", "multiprocessing worker ForkPoolWorker-1",
//           "compile worker", "fork server", "resource tracker", "launcher of ranks", "child of rank 0"; empty for any
//           other program. One line, printable
//   place   from 1: each process comes before its children; children are sorted: ranks in their order, DataLoader
//           workers by number, then other helpers
void assign_roles(std::vector<Process>& processes);

}  // namespace torchprof::formats
