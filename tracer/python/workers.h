// What multiprocessing and torch's DataLoader call this process: facts of it.
//
//     multiprocessing.process   PID tab NAME: multiprocessing.current_process().name, of a child
//     dataloader.worker         PID tab NUMBER tab COUNT: this is worker NUMBER (from 0) of COUNT
//
// A forked child begins with its parent's facts: one whose PID is another's is not its own.
//
// Source: multiprocessing/process.py, 3.10 to 3.14: BaseProcess._bootstrap makes the child's Process object the
// module's _current_process, calls _after_fork (SpawnProcess has its own, in context.py) and then run(); _name is the
// object's own. The parent's is a _MainProcess, and _parent_process is None in it.
// torch/utils/data/_utils/worker.py, 1.13 to 2.14: _worker_loop sets _worker_info, {id, num_workers, ...}, and calls
// _DatasetKind.create_fetcher (torch/utils/data/dataloader.py).
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// `frame` is of a function of FunctionKind::kWorker that begins, runs or ends. With the GIL held; a pending exception
// is kept.
void record_worker(Frame* frame) noexcept;

}  // namespace torchprof::python
