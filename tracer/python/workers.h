// The role of this process in multiprocessing and torch's DataLoader, and how its children ended, as facts:
//
//     multiprocessing.process   PID tab NAME                in a child: multiprocessing.current_process().name
//     dataloader.worker         PID tab NUMBER tab COUNT    it is worker NUMBER (from 0) of COUNT
//
//     child.PID                 STATUS                      in a parent: child PID has ended; negative: by that signal
//                               STATUS tab signalled        and this process had sent it a signal
//
// A forked child begins with its parent's facts; those with another PID are not its own. Only of kMostChildren children
// is told how they ended. A process whose spool is not open then tells nothing.
//
// Source: multiprocessing/process.py, 3.10 to 3.15: BaseProcess._bootstrap makes the child's Process object the
// module's _current_process, calls _after_fork (SpawnProcess has its own, in context.py) and then run(); _name is the
// object's own. The parent's is a _MainProcess, and _parent_process is None in it.
// torch/utils/data/_utils/worker.py, 1.13 to 2.14: _worker_loop sets _worker_info, {id, num_workers, ...}, and calls
// _DatasetKind.create_fetcher (torch/utils/data/dataloader.py).
// multiprocessing/popen_fork.py and popen_forkserver.py, 3.10 to 3.15: Popen.poll() waits and sets `returncode` beside
// `pid`; terminate(), kill() and interrupt() call _send_signal(). subprocess.py likewise: _handle_exitstatus(), and
// send_signal().
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

inline constexpr int kMostChildren = 4096;

// `frame` belongs to a function of FunctionKind::kWorker that begins, runs or ends. With the GIL held; a pending
// exception is kept.
void record_worker(Frame* frame) noexcept;

}  // namespace torchprof::python
