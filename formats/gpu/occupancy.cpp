#include "formats/gpu/occupancy.h"

#include <algorithm>

namespace torchprof::formats {
namespace {

constexpr int64_t kRegisterUnit = 256;      // a warp's registers are allocated in such units
constexpr int64_t kMostRegisters = 256;     // of a thread; before 7.0 it is 255, and compilers do not use more
constexpr int64_t kReservedShared = 1024;   // bytes of each block that the system takes, from 8.0 on
constexpr int64_t kMostThreads = 1u << 20;  // of a block: more than any device has, but products do not overflow

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t threads_of(const uint32_t (&size)[3]) {
  int64_t product = 1;
  for (const uint32_t n : size) product = std::min(product * std::min<int64_t>(n, kMostThreads), kMostThreads);
  return product;
}

int64_t limit_by_registers(Occupancy& o, const GpuKernel& kernel, const GpuDeviceDef& d, int64_t warps) {
  // A warp runs in one part of a multiprocessor, and each part has registers of its own.
  const int64_t parts = d.major == 6 && d.minor == 0 ? 2 : 4;
  const int64_t of_warp = round_up(int64_t{kernel.registers} * d.warp_size, kRegisterUnit);
  o.registers_per_block = of_warp * warps;
  if (d.registers_per_block < of_warp * round_up(warps, parts) || kernel.registers > kMostRegisters) return 0;
  if (of_warp == 0) return Occupancy::kNoLimit;
  return d.registers_per_multiprocessor / parts / of_warp * parts / warps;
}

int64_t limit_by_shared(Occupancy& o, const GpuKernel& kernel, const GpuDeviceDef& d) {
  const int64_t wanted = std::max<int64_t>(0, kernel.static_shared) + std::max<int64_t>(0, kernel.dynamic_shared) +
                         (d.major >= 8 ? kReservedShared : 0);
  o.shared_per_block = round_up(wanted, d.major >= 8 ? 128 : 256);
  const int64_t most = d.shared_per_multiprocessor;
  return o.shared_per_block == 0 ? Occupancy::kNoLimit : most / o.shared_per_block;
}

}  // namespace

Occupancy occupancy_of(const GpuKernel& kernel, const GpuDeviceDef* device) {
  Occupancy o;
  if (device == nullptr || device->multiprocessors == 0 || device->warp_size == 0) return o;
  const GpuDeviceDef& d = *device;
  float blocks = 1;
  for (const uint32_t n : kernel.grid) blocks *= static_cast<float>(n);
  const int64_t threads = threads_of(kernel.block);
  o.blocks_per_sm = blocks / static_cast<float>(d.multiprocessors);
  o.warps_per_sm = o.blocks_per_sm * static_cast<float>(threads) / 32;
  const int64_t warps = (threads + d.warp_size - 1) / d.warp_size;
  if (warps == 0) return o;
  o.by_warps = threads > d.threads_per_block ? 0 : d.warps_per_multiprocessor / warps;
  o.by_blocks = d.blocks_per_multiprocessor;
  o.by_registers = limit_by_registers(o, kernel, d, warps);
  o.by_shared = limit_by_shared(o, kernel, d);
  o.active_blocks = std::min({o.by_warps, o.by_blocks, o.by_registers, o.by_shared});
  const double most_threads = static_cast<double>(d.warps_per_multiprocessor) * d.warp_size;
  if (most_threads > 0) {
    o.achieved = std::min(static_cast<double>(o.active_blocks), static_cast<double>(o.blocks_per_sm)) *
                 static_cast<double>(threads) / most_threads;
  }
  return o;
}

}  // namespace torchprof::formats
