// How many blocks of a kernel fit on a multiprocessor, and what share of its threads they are: the arithmetic of CUDA's
// occupancy calculator (cuda_occupancy.h of 13.0) for compute capability 5.0 to 12.1, later ones as 12. (It differs on
// 6.0 where a block takes nearly all registers.)
//
// As in Kineto the kernel's preference for shared memory is taken for none, and its barriers bound nothing. Unlike
// Kineto, a kernel that opted in to more shared memory than the 48 KiB that every kernel may have is counted as it
// runs: Kineto says 0.
#pragma once

#include <cstdint>

#include "tracer/spool/record.h"

namespace torchprof::formats {

struct Occupancy {
  float blocks_per_sm = 0;  // of the grid, not how many run at a time; 0 where the device is not known
  float warps_per_sm = 0;
  double achieved = 0;  // 0 to 1, estimated: of the threads of a multiprocessor
  // How many blocks fit; kNoLimit where this does not bound them.
  static constexpr int64_t kNoLimit = 0x7fffffff;
  int64_t active_blocks = 0;
  int64_t by_registers = 0, by_shared = 0, by_warps = 0, by_blocks = 0;
  int64_t registers_per_block = 0, shared_per_block = 0;  // allocated
};

// `device` null: it is not known.
Occupancy occupancy_of(const GpuKernel& kernel, const GpuDeviceDef* device);

}  // namespace torchprof::formats
