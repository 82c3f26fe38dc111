// What costs a program time without need: short findings, each with its evidence and the line concerned.
//
//   loading      steps wait in a DataLoader's __next__ for a tenth of their time or more
//   host bound   a process with GPU work: for four tenths of its steps' time or more the GPU has nothing to do while
//                the program runs; said also how long its kernels are
//   sync         calls that wait for the GPU (cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize,
//                cudaMemcpy) inside of steps, once a step or more: item(), nonzero(), cpu() make them
//   pageable     copies between the GPU and memory that is not pinned: they are staged, and the program waits
//   tiny kernels  a hundred kernels a step or more, half of all, of names that take less than 10 us on average and a
//                twentieth of the time together
//   autocast     matrix products and convolutions in float32 on ordinary cores take a tenth of the time
//   layout       kernels of cuDNN that transpose between NCHW and NHWC take a fiftieth of the time
//   zero_grad    gradients are set to zero rather than to None: a write and a read of each more than needed
//   slow rank    in collectives the others wait for the same process in six of ten, for a twentieth of the time or more
//
// Where: the program's own line, formats/analysis/program_places.h. Of what has many (kernels, and what a host-bound program
// does meanwhile on the threads that launch) the one with the most time. Of a slow rank: where it calls the collective.
//
// Shares are of the time of steps but the first of each process, which loads and chooses for the others; of what is
// wasted only what begins in these steps counts, up to their ends. Without steps a slow rank alone is looked for, and
// has no share. A rule with less evidence says nothing.
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
// By what, and from where; "" is not known.
using WasteTallies = std::map<std::pair<Waste, std::string>, WasteTally>;

struct StepWaste {  // of one process
  WasteTallies by_place;
  std::map<std::pair<std::string, std::string>, WasteTally> kernels;    // by name and place; no bytes
  std::map<std::string, int64_t> host_ns;                               // of threads that launch, by place
  std::map<std::pair<std::string, std::string>, uint64_t> collectives;  // calls, by name and place
};

// The first step loads, compiles and chooses for all that follow.
template <class Step>
std::span<const Step> without_first(std::span<const Step> steps) {
  return steps.size() > 1 ? steps.subspan(1) : steps;
}

// None: it lies between steps, which are in the order of their begins.
const StepSpan* step_at(std::span<const StepSpan> steps, int64_t time);

// What begins within these steps, which are in the order of their begins; where there are none, collectives alone. A
// replay of its own.
StepWaste waste_of(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
