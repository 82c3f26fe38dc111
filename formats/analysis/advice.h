// What costs a program time without need: short findings, each with its evidence and the line of the program.
//
//   loading       steps wait in a DataLoader's __next__ for a tenth of their time or more
//   host bound    in a process with GPU work, the GPU has nothing to do while the program runs, for four tenths of its
//                 steps' time or more; the finding also says how long its kernels are
//   sync          calls that wait for the GPU (cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize,
//                 cudaMemcpy) in steps, once a step or more: item(), nonzero() and cpu() make them
//   pageable      copies between the GPU and memory that is not pinned: they are staged, and the program waits
//   tiny kernels  a hundred kernels a step or more, and half of all, have names whose kernels take less than 10 us on
//                 average and a twentieth of the time together
//   autocast      matrix products and convolutions in float32 on ordinary cores take a tenth of the time
//   layout        kernels of cuDNN that transpose between NCHW and NHWC take a fiftieth of the time
//   zero_grad     gradients are set to zero and not to None: one write and one read of each more than needed
//   slow rank     in six of ten collectives the others wait for the same process, for a twentieth of the time or more
//
// Where: the program's own line (program_places.h). If there are many (kernels; what a host-bound program does on the
// threads that launch), the one with the most time. For a slow rank, where it calls the collective.
//
// Shares are of the time of steps, without the first step of each process, which loads and chooses for the others.
// Waste counts if it begins in these steps, and up to the end of its step. Without steps only a slow rank is looked
// for, and it has no share. A rule with too little evidence gives no finding.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "formats/io/sum.h"
#include "formats/replay/step_samples.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

enum class Waste : uint8_t { kSync, kPageable, kZeroGrad, kLoading };

struct WasteTally {
  uint64_t calls = 0;
  int64_t ns = 0;
  uint64_t bytes = 0;
  WasteTally& operator+=(const WasteTally& other) {
    calls += other.calls;
    add_to(ns, other.ns);
    bytes += other.bytes;
    return *this;
  }
};
// By kind and place; "": the place is not known.
using WasteTallies = std::map<std::pair<Waste, std::string>, WasteTally>;

struct StepWaste {  // the waste of one process
  WasteTallies by_place;
  std::map<std::pair<std::string, std::string>, WasteTally> kernels;    // by name and place, without bytes
  std::map<std::string, int64_t> host_ns;                               // time on threads that launch, by place
  std::map<std::pair<std::string, std::string>, uint64_t> collectives;  // number of calls, by name and place
};

// All steps but the first one, which loads, compiles and chooses for those that follow.
template <class Step>
std::span<const Step> without_first(std::span<const Step> steps) {
  return steps.size() > 1 ? steps.subspan(1) : steps;
}

// The step at this time; null: it lies between steps. `steps` are sorted by begin.
const StepSpan* step_at(std::span<const StepSpan> steps, int64_t time);

// The waste that begins in these steps, which are sorted by begin; if there are none, only collectives. Does one
// replay.
StepWaste waste_of(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
