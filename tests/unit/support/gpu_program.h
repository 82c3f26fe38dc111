// Programs that use a GPU, for tests of the reader's half.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/support/spool_builder.h"

namespace torchprof::test {

inline constexpr uint16_t kLaunch = 211, kMemcpyAsync = 41, kGetDevice = 17, kStreamSynchronize = 131,
                          kEventRecord = 135, kStreamWaitEvent = 147;
inline constexpr uint16_t kDriverLaunch = 307;

inline std::string numbered(std::string name, uint64_t i) { return name.append(std::to_string(i)); }

inline GpuDeviceDef h100(uint32_t number) {
  GpuDeviceDef d{};
  d.device = number;
  d.memory = uint64_t{80} << 30;
  d.major = 9;
  d.multiprocessors = 132;
  d.warp_size = 32;
  d.threads_per_block = 1024;
  d.warps_per_multiprocessor = 64;
  d.blocks_per_multiprocessor = 32;
  d.registers_per_block = d.registers_per_multiprocessor = 65536;
  d.shared_per_block = 49152;
  d.shared_per_block_optin = 232448;
  d.shared_per_multiprocessor = 233472;
  return d;
}

inline GpuApi call(uint32_t thread, uint64_t start, uint64_t end, uint32_t correlation, uint16_t cbid = kLaunch,
                   GpuApiKind api = GpuApiKind::kRuntime) {
  GpuApi a{};
  a.start = SpoolBuilder::cupti(start);
  a.end = SpoolBuilder::cupti(end);
  a.thread = thread;
  a.correlation = correlation;
  a.cbid = cbid;
  a.api = api;
  return a;
}

inline GpuKernel kernel(SpoolBuilder& b, uint64_t start, uint64_t end, uint32_t correlation,
                        std::string_view name = "_Z4gemmPf", uint32_t device = 0, uint32_t stream = 7) {
  GpuKernel k{};
  k.start = SpoolBuilder::cupti(start);
  k.end = SpoolBuilder::cupti(end);
  k.correlation = correlation;
  k.name = b.string(name);
  k.device = device;
  k.context = device + 1;
  k.stream = stream;
  k.grid[0] = 66;
  k.grid[1] = k.grid[2] = k.block[1] = k.block[2] = 1;
  k.block[0] = 128;
  k.registers = 16;
  return k;
}

// A program on thread 100, which torch numbers 1, and CUPTI's own thread, on which all is delivered at the end.
struct Program {
  SpoolBuilder b;
  TrackId main, cupti;
  explicit Program(std::vector<std::string> command = {"/usr/bin/python3", "train.py"}) : b(100, std::move(command)) {
    main = b.thread(100, "pt_main_thread", 1);
    cupti = b.thread(900, "cupti");
    b.meta("cupti.thread", "system");
    b.meta("cupti.version", "22");
    b.meta("cuda.driver", "12040");
    b.meta("cuda.runtime", "12010");
    b.device(h100(0), "NVIDIA H100");
    b.context(1, 0, 7);
    b.on(main);
  }
  void deliver() { b.on(cupti).at(900'000); }
};

}  // namespace torchprof::test
