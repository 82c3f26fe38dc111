// Looks at what the threads of this process do, --sample times a second, whether a window is open or not: which Python
// line each has come to, how long it was on a processor, how long it was ready without one, and what it waited for in
// the rest (record.h: StackNode, Sample). It sees what no hook sees: C code, waits, and the time between windows.
//
// A thread of ours does it ("torchprof stack"). It takes part in nothing: it reads memory by process_vm_readv, which
// cannot fault, never waits for the GIL, and stops nobody (spool/python_stack.h). Where it cannot read, nothing is
// recorded and the source "samples" says why. Not on 3.10, whose threads do not say their numbers.
//
// What it must not do to the program:
//   * From 3.12 on os.fork() warns where a process has more than one thread: ours ends before a fork, and starts again
//     when os.fork() has returned, in the child as well (Forking), or right after a fork of C code, whose child has
//     none.
//   * Its descriptors are in a table of its own (CLOSE_RANGE_UNSHARE, Linux 5.9): the program neither sees nor closes
//     them. Without that nothing is kept open. It needs the program's table where the spool can be reached by a
//     descriptor alone (session::keep_file()): it ends before that, and starts again (inject/identity.cpp).
//   * libc ends a process when its last thread has ended: ours ends when only threads of ours are left. A child that
//     another thread than the first one has forked has none.
//   * It ends before the process is sealed (process/own_thread.h), for unshare() and setns(), which the kernel may
//     refuse to a process with several threads (there, too), and when the interpreter ends.
//   * The pause between two rounds is random, three quarters to five quarters of the period, so that it does not keep
//     pace with the program, and so long that rounds take at most a hundredth of a processor (as many times more as
//     there are more than 50 of them a second), and a twentieth of a second at once: in the beginning they meet all
//     threads and functions (look_budget.h).
//   * A thread that has not run since the last look costs the look at its clock alone. It has the same line and waits
//     for the same thing: one Sample says it when that ends, or each time it has become twice as long.
//   * What is written is bounded: each 2 MiB of it the period doubles, so that a day takes some 16 MiB.
//   * A process without events gets no spool because of it; where --sample HZ asks for it, a process that lives for a
//     fifth of a second does.
//   * Without --sample HZ it starts with torch: any other program of Python keeps its threads as they are.
//
// Foreign facts: the kernel's clock of a thread by its number (clock_gettime(2), CPUCLOCK_* in
// include/linux/posix-timers.h), /proc/self/task/TID/{schedstat,syscall} (proc(5)). The GIL: python/threads.h.
#pragma once

#include "tracer/config/config.h"

namespace torchprof::sampler {

// As the configuration wants it. With the GIL held, after python::start_calls(). Once.
void start(const Config& config) noexcept;

// The process ends, as far as it does by exit(): a wait that has just ended is recorded. Waits for our thread, which
// waits for nobody.
void end() noexcept;

// os.fork() and the like are being called on this thread: between the two no thread of ours is started, since Python
// counts threads after the fork. Nests.
class Forking {
 public:
  Forking() noexcept;
  ~Forking();
  Forking(const Forking&) = delete;
  Forking& operator=(const Forking&) = delete;
};

}  // namespace torchprof::sampler
