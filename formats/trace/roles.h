// What each process of a run is to the others (its role), for people, the order in which they are shown, and which of
// them are shown together.
//
// It follows from facts of the recorder (distributed_of(); tracer/python/workers.h), from the command lines that
// multiprocessing, torchrun and Inductor give their helpers, and from who started whom. A fact that cannot be parsed is
// left out.
//
// Sources of the command lines: CPython multiprocessing/{spawn,forkserver,resource_tracker}.py, 3.10 to 3.14; torch
// distributed/{run,launch}.py, 1.13 to 2.14; _inductor/compile_worker, 2.1 to 2.14. accelerate/commands/launch.py and
// its entry points in setup.py. Of a process pool: Pool names its workers PoolWorker-N (multiprocessing/pool.py), those
// of concurrent.futures run _process_worker (concurrent/futures/process.py).
#pragma once

#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// Fills in Process::role, place, is_helper, group and group_name. `processes` are sorted by start.
//
//   role    "rank 0", "DataLoader worker 3", "rank 1, DataLoader worker 3", "multiprocessing worker ForkPoolWorker-1",
//           "compile worker", "fork server", "resource tracker", "launcher of ranks", "child of rank 0"; empty for any
//           other program. One line, printable. Where a DataLoader is gone through more than once, its workers have
//           the time, too: "DataLoader worker 3, epoch 2"
//   place   from 1: each process comes before its children; children are sorted: ranks in their order, DataLoader
//           workers by epoch and number, then other helpers
//   group   two or more workers of DataLoaders with equally many workers, of pools, of torch.compile, fork servers or
//           resource trackers that work for the same process. An epoch is one pass through a DataLoader that started
//           workers, be it for training or validation
void assign_roles(std::vector<Process>& processes);
// By their places.
std::vector<const Process*> in_shown_order(const std::vector<Process>& processes);

// Who belongs together: the ranks of one job, or one program, each with those that work for it. Of a script that trains
// twice each training is a job; so is every command that a program starts.
//
// Ranks are of one job if they have the same number of ranks, each another one, and their times overlap. Those that one
// launcher has started come first, so that two jobs that run side by side stay apart.
struct Job {
  std::vector<size_t> programs{};  // indices into the processes: the ranks in their order, or the program
  std::vector<size_t> helpers{};   // workers, forked children, compilers, resource trackers, launchers of ranks
};
// In the order of their first program's start. `processes` are sorted by start.
std::vector<Job> jobs_of(const std::vector<Process>& processes);
// The place in jobs_of() of each process's job, by its index.
std::vector<uint32_t> job_numbers(const std::vector<Process>& processes);

// Whether it is the role of a worker of a DataLoader, or of several.
bool is_loader(std::string_view role);

// Whether what its interpreter runs is a text of multiprocessing (`python -c "from multiprocessing.spawn import ..."`):
// a worker that was spawned, a fork server and what it forks, a resource tracker.
bool runs_multiprocessing(const Process& process);

}  // namespace torchprof::formats
