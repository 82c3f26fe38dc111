// The two halves of the simulated libcupti: what CUDA does (sim_cuda.cpp) tells CUPTI (sim_cupti.cpp) of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>

#include "tests/cupti_sim/layouts.h"

namespace cupti_sim {

// 18, 22, 130000 or 130100; CUPTI_SIM_VERSION says 11.8, 12.4 (without it), 13.0 or 13.1.
uint32_t version();
// Number in NAME=NUMBER of a list in an environment variable, or `otherwise`: CUPTI_SIM="drop=3,unknown=100"
long setting(const char* name, long otherwise);

// What a clock says that runs `drift` millionths too fast since it was first asked.
uint64_t drifted(uint64_t ns, long drift);
// The devices' clock; CUPTI's own is this one plus set_clock().
inline uint64_t now_ns() {
  static const long drift = setting("drift", 0);
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  const uint64_t ns = static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  return drift == 0 ? ns : drifted(ns, drift);
}

// By how much the wall clock has been set, ns. CUPTI stamps calls by it at once; what it adds to the devices' times is
// a reading that is up to a second old (so on an H100).
std::atomic<int64_t>& set_clock();

// What a record of the processor's work is stamped with: the clock that CUPTI was given, if it was.
uint64_t host_now();

bool is_initialized();  // cuInit has begun
bool is_enabled(uint32_t kind);
bool is_call_enabled(uint32_t kind, uint32_t cbid);  // `kind`: 4, a call of the driver, or 5, of the runtime
// To be called when a context is made.
void context_made();
// Ends the program where the caller is in one of torchprof's buffer callbacks.
void check_caller(const char* function);
// A record of the calling thread (lane -1) or of a device: into its buffer, or dropped.
void deliver(int lane, const void* record, uint32_t kind);
template <class R>
void deliver(int lane, const R& record) {
  deliver(lane, &record, record.kind);
}
// Work that has not ended, where its record is to be: in the buffer of the thread that launched it.
struct Slot {
  uint8_t* at = nullptr;
  uint32_t bytes = 0;
  std::shared_ptr<std::atomic<int>> open;
};
// As the real one (H100, CUDA 13.0): all but the times is there at once, with a bit in the number of its kind.
Slot open_record(const void* record, uint32_t kind);
void close_record(const Slot& slot, const void* record);
// For cuptiFinalize: names that records point to are gone.
void forget_names();
// The program's own identifier for a call, if it pushed one.
void say_external(uint32_t correlation);
// Devices: what has not ended is handed over with an end of 0.
void give_up_pending();
void complete_pending();  // what has ended
void say_devices();

}  // namespace cupti_sim
