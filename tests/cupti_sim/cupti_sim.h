// The two halves of the simulated libcupti: what CUDA does (sim_cuda.cpp) tells CUPTI (sim_cupti.cpp) of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

#include "tests/cupti_sim/layouts.h"

namespace cupti_sim {

// 18, 22, 130000 or 130100; CUPTI_SIM_VERSION says 11.8, 12.4 (without it), 13.0 or 13.1.
uint32_t version();
// Number in NAME=NUMBER of a list in an environment variable, or `otherwise`: CUPTI_SIM="drop=3,unknown=100"
long setting(const char* name, long otherwise);

// What a clock says that runs `drift` millionths too fast since it was first asked.
uint64_t drifted(uint64_t ns, long drift);
// CUPTI's clock and the devices'.
inline uint64_t now_ns() {
  static const long drift = setting("drift", 0);
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  const uint64_t ns = static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  return drift == 0 ? ns : drifted(ns, drift);
}

bool is_enabled(uint32_t kind);
// Ends the program where the caller is in one of torchprof's buffer callbacks.
void check_caller(const char* function);
// A record of the calling thread (lane -1) or of a device: into its buffer, or dropped.
void deliver(int lane, const void* record, uint32_t kind);
template <class R>
void deliver(int lane, const R& record) {
  deliver(lane, &record, record.kind);
}
// The program's own identifier for a call, if it pushed one.
void say_external(uint32_t correlation);
// Devices: what has not ended is handed over with an end of 0.
void give_up_pending();
void say_devices();

}  // namespace cupti_sim
