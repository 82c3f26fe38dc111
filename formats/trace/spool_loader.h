// One spool to a Process: all that can be read before the clocks of the run are known.
//
// Damage is counted in Process::damage; nothing is thrown but for memory. One call for each process, on one thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "formats/trace/blind.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// What was read and needs the process's clock, start and end to become a part of the Process.
struct SpoolRest {
  Ticks last_event{};  // 0: no events, or they were not read
  BlindSums blind;
  std::shared_ptr<GpuIndex> gpu;  // null: no GPU records
  std::vector<WindowDef> windows;
  struct Step {
    Ticks end;
    uint64_t step;
    uint32_t window;
    uint32_t was_open;
    uint32_t switching_us;
  };
  std::vector<Step> steps;
  struct Sample {
    Ticks at;
    uint64_t bytes;
  };
  std::vector<Sample> resident;
  std::vector<std::pair<Ticks, ProcessorTime>> processor_times;
  std::vector<std::pair<Ticks, MachineTime>> machine_times;
  std::vector<std::pair<Ticks, torchprof::Sample>> samples;
  struct Stack {
    Ticks at;
    uint64_t beyond;
    std::vector<StackFrame> frames;
  };
  std::map<uint32_t, Stack> stacks;  // by tid, the latest
};

// `process.spool` is set; fills in the rest.
SpoolRest load_spool(Process& process, Contents contents);

}  // namespace torchprof::formats
