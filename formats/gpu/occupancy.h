// How many blocks of a kernel fit on a multiprocessor, and which share of its threads they use: as CUDA's occupancy
// calculator computes it (cuda_occupancy.h of 13.0) for compute capability 5.0 to 12.1, later ones like 12. (The result
// differs on 6.0 if a block takes nearly all registers.)
//
// As in Kineto, a kernel's preference for shared memory is ignored, and barriers are no limit. Unlike in Kineto, which
// gives 0, a kernel that opted in to more than the usual 48 KiB of shared memory gets the value with which it runs.
#pragma once

#include <cstdint>

#include "tracer/spool/record.h"

namespace torchprof::formats {

struct Occupancy {
  float blocks_per_sm = 0;  // blocks of the grid for each, not how many run at a time; 0: device not known
  float warps_per_sm = 0;
  double achieved = 0;  // estimated share of a multiprocessor's threads, 0 to 1
  // How many blocks fit by this resource; kNoLimit: any number.
  static constexpr int64_t kNoLimit = 0x7fffffff;
  int64_t active_blocks = 0;
  int64_t by_registers = 0, by_shared = 0, by_warps = 0, by_blocks = 0;
  int64_t registers_per_block = 0, shared_per_block = 0;  // allocated
};

// `device`: null if it is not known.
Occupancy occupancy_of(const GpuKernel& kernel, const GpuDeviceDef* device);

}  // namespace torchprof::formats
