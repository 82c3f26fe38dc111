// What costs a program time without need: short findings, each with its evidence and the lines concerned.
//
//   loading      steps wait in a DataLoader's __next__ for a tenth of their time or more
//   host bound   a process with GPU work: for four tenths of its steps' time or more the GPU has nothing to do while
//   the
//                program runs; said also how long its kernels are
//   sync         calls that wait for the GPU (cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize,
//   cudaMemcpy)
//                inside of steps, once a step or more: item(), nonzero(), cpu() make them
//   pageable     copies between the GPU and memory that is not pinned: they are staged, and the program waits
//   tiny kernels  a hundred kernels a step or more, half of all, of names that take less than 10 us on average and a
//                twentieth of the time together
//   autocast     matrix products and convolutions in float32 on ordinary cores take a tenth of the time
//   layout       kernels of cuDNN that transpose between NCHW and NHWC take a fiftieth of the time
//   zero_grad    gradients are set to zero rather than to None: a write and a read of each more than needed
//   slow rank    in collectives the others wait for the same process in six of ten, for a twentieth of the time or more
//
// Shares are of the time of steps but the first of each process, which loads and chooses for the others. Without steps
// a slow rank alone is looked for, and has no share. A rule with less evidence says nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/replay.h"

namespace torchprof::formats {

enum class Waste : uint8_t { kSync, kPageable, kZeroGrad };

struct WasteTally {
  uint64_t calls = 0;
  int64_t ns = 0;
  uint64_t bytes = 0;
};
// By what, and the Python function that it is called from.
using WasteTallies = std::map<std::pair<Waste, std::string>, WasteTally>;

class WasteCollector {
 public:
  explicit WasteCollector(Replay& replay) : replay_(replay) {}
  void slice(const Slice& slice);
  void gpu_call(const GpuCall& call);
  void gpu(const GpuActivity& activity);
  WasteTallies finish();

 private:
  enum class Role : uint8_t { kUnseen, kPlain, kZero, kZeroGrad, kWaits };
  Role role_of(NameId name);
  WasteTally& at(Waste waste, const Span* around, uint32_t depth);

  Replay& replay_;
  std::vector<Role> roles_;                                   // by name
  std::map<std::pair<Waste, uint32_t>, WasteTally> tallies_;  // by the function's name, 0: none
};

}  // namespace torchprof::formats
