// What each process is among the others of its run, for people, and in which order they are shown.
//
// Read from facts of the recorder (distributed_of(); tracer/python/workers.h), from the command lines that
// multiprocessing, torchrun and inductor give their helpers, and from who started whom. A hostile fact gives less.
//
// Sources of the command lines: CPython multiprocessing/{spawn,forkserver,resource_tracker}.py, 3.10 to 3.14; torch
// distributed/{run,launch}.py, 1.13 to 2.14; _inductor/compile_worker, 2.1 to 2.14.
#pragma once

#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// Fills in Process::role and Process::place. `processes` by start.
//
//   role    "rank 0", "DataLoader worker 3", "rank 1, DataLoader worker 3", "multiprocessing worker ForkPoolWorker-1",
//           "compile worker", "fork server", "resource tracker", "launcher of ranks", "child of rank 0"; empty for a
//           program like any other. One line, printable
//   place   from 1: each process comes before those that it started; among these ranks in their order, then DataLoader
//           workers by number, then the other helpers
void assign_roles(std::vector<Process>& processes);

}  // namespace torchprof::formats
