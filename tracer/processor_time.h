// What the thread that ends steps, its process and the machine have used up to the end of a step (record.h,
// ProcessorTime and MachineTime): time on a processor, time ready to run without one, time that the machine's
// processors had nothing to do. The totals only grow, and a reader takes differences: what of a step was neither run
// nor queued, its thread slept.
//
// Not every step's end is looked at: they are 5 ms apart at least, and outside of windows a 20,000th of the time since
// the first one, so that a run of a day has some 200,000. A look takes some 4 us, so at most 0.1 % of the time; where
// /proc answers slowly (measured on a virtual machine: 40 to 60 us) at most 1 % of the steps in a window. Nothing is
// kept open in the program: the file of the queue's time is opened, read and closed (process/descriptors.h), so that
// nothing of it has to survive a fork, a closed descriptor or another thread.
//
// Sources: /proc/thread-self/schedstat (Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat"), of which the
// second number is taken; the first one lags by up to a tick, so the time on a processor comes from
// CLOCK_THREAD_CPUTIME_ID. Without CONFIG_SCHED_INFO all its numbers are 0. /proc/uptime (proc(5)), whose second number
// is the sum over all processors: unlike /proc/stat it has no row for each interrupt.
#pragma once

#include <cstdint>

namespace torchprof::processor_time {

// A step has ended at `now` (ns, CLOCK_MONOTONIC) on this `thread` (pthread_self()), and was just recorded. Does
// nothing where the caller is another thread, or the process is sealed. `in_window`: a window is open. By one thread at
// a time; errno is kept by the caller.
void look(uint64_t thread, int64_t now, bool in_window) noexcept;
// Says among how many threads torch divides an operator of the calling thread. It only reads, and may be called on any
// thread that ran operators.
using OperatorThreads = int (*)();
void ask(OperatorThreads threads) noexcept;
void after_fork_in_child() noexcept;
// Bytes that the process has in memory; 0: not known. Any thread.
uint64_t resident() noexcept;

}  // namespace torchprof::processor_time
