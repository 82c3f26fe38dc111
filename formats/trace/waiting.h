// Which Python functions and C calls do nothing but wait for something else: a lock, another thread or process, a
// socket, a time. Their self time is idle and not spent: helper threads of a program sit in them for the whole run.
//
// The one list of their names. A function is in it if it makes the call that blocks, so that its self time is the wait;
// a function that only calls such a one (Event.wait, Queue.get) has little self time and is work.
//
//   not in it   reads and receives of files, pipes and sockets by os.read, file objects or socket.recv: the name does
//               not say whether somebody waits for the other side or moves data. What waits for a GPU
//               (cudaStreamSynchronize, item()), because the program's own work is done there
//
// Sources: CPython 3.10 to 3.14, Lib/{threading,selectors,socket,subprocess}.py, Lib/multiprocessing/{connection,
// forkserver,popen_fork,resource_tracker,synchronize}.py, Lib/concurrent/futures/thread.py, and the reprs of the
// functions of _thread, _queue, _multiprocessing, select, socket, time, posix and signal. torch:
// _inductor/compile_worker/subproc_pool.py (2.4 and later; the thread that reads results),
// distributed/elastic/agent/server/api.py (1.13 to 2.14; torchrun watches its ranks). The e2e tests test_waits.py and
// test_workers.py run each of CPython's.
#pragma once

#include <string_view>

namespace torchprof::formats {

// `name`: as tables and traces have it, torch.profiler's, too: "path(line): name" of a function or a line, or the repr
// of a C call with or without its address ("<built-in method acquire of _thread.lock object at 0x7f...>").
// A file of the standard library must lie in a directory of Python's (python3.11, Lib) or have no directory, as in
// traces that cut it: a program's own src/threading.py is another file.
bool is_waiting(std::string_view name);

}  // namespace torchprof::formats
