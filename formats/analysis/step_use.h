// What the thread that ends steps spent their time with, whether a window was open or not: on a processor, ready to run
// without one, or asleep; and what the process and the machine did meanwhile. From the totals that the recorder read at
// the ends of some steps (tracer/processor_time.h): each interval lies between two of them of one thread, so it is one
// step or, where steps are shorter than some milliseconds or the run is long, several in a row.
//
// Asleep is all that is neither run nor queued: a sleep, a lock, the GIL, input and output. A thread that spins while
// it waits runs. Time that a container's limit of processors takes away counts as queued, as it does where other
// threads have them.
//
// Times in ns on the trace's clock. Pure; damaged totals give no interval.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct StepUse {
  int64_t begin;
  int64_t end;
  uint32_t tid;             // gettid() of the thread
  uint64_t steps;           // that ended in (begin, end]
  int64_t ran_ns;           // at most end - begin, and so is the sum with queued_ns
  int64_t queued_ns;        // 0 where it is not known
  int64_t process_ran_ns;   // of all threads of the process
  uint64_t resident_bytes;  // that the process had in memory at the end, as far as it was read; 0: not known
  bool knows_queued;

  int64_t ns() const { return end - begin; }
  // With what was queued, where that is not known.
  int64_t slept_ns() const { return ns() - ran_ns - queued_ns; }
};

struct MachineUse {  // a tenth of a second or more; of a run that goes on, a second
  int64_t begin;
  int64_t end;
  int64_t busy_ns;         // of all its processors together
  int64_t process_ran_ns;  // the part of this process; at most busy_ns
  uint32_t processors;
  uint32_t allowed;               // those on which the process may run; 0: not known
  uint32_t operator_threads = 0;  // among which torch divided an operator of the thread, at the end; 0: not known

  int64_t ns() const { return end - begin; }
  int64_t others_ns() const { return busy_ns - process_ran_ns; }
};

std::vector<StepUse> step_use_of(const Process& process);        // by end
std::vector<MachineUse> machine_use_of(const Process& process);  // in the order of time

}  // namespace torchprof::formats
