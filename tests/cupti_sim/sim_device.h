// What the functions of the simulated CUDA have in common: which device the thread is on, calls, and kernels.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdint>

#include "tests/cupti_sim/cupti_sim.h"

#define SIM_API extern "C" __attribute__((visibility("default")))
#define NEED_CUDA \
  if (!is_ready()) return kNotInitialized

namespace cupti_sim {

inline constexpr int kNotInitialized = 3, kInvalidDevice = 101;

// Of cupti_runtime_cbid.h and cupti_driver_cbid.h, the same since CUDA 11.
enum Cbid : uint32_t {
  kGetDevice = 17,
  kMalloc = 20,
  kFree = 22,
  kMemcpyAsync = 41,
  kMemsetAsync = 51,
  kStreamSynchronize = 131,
  kEventRecord = 135,
  kEventSynchronize = 137,
  kStreamWaitEvent = 147,
  kMemcpyPeerAsync = 161,
  kDeviceSynchronize = 165,
  kLaunchKernel = 211,
  kCtxGetCurrent = 304,  // of the driver
  kGraphLaunch = 311,
  kMemPoolTrimTo = 377,
  kMemPoolCreate = 383,
  kMemPoolDestroy = 384,
};
constexpr uint32_t kDriver = 4, kRuntime = 5;  // kinds of an ApiRecord

extern thread_local int t_device;

bool is_ready();
int device_count();
uint32_t next_correlation();
void make_context();  // of the thread's device, unless there is one
// A kernel of `ns` on the thread's device; graph 0: of none.
int launch(const char* name, uint32_t stream, uint64_t ns, uint32_t correlation, uint32_t graph, uint64_t node);

// An API call: it begins with the object and is recorded when it ends. `correlation` 0: one of its own.
class Call {
 public:
  explicit Call(uint32_t cbid, uint32_t kind = kRuntime, uint32_t correlation = 0) {
    record_.kind = kind;
    record_.cbid = cbid;
    record_.start = host_now();
    record_.correlation_id = correlation != 0 ? correlation : next_correlation();
  }
  ~Call() {
    record_.end = host_now();
    record_.process_id = static_cast<uint32_t>(getpid());
    record_.thread_id = static_cast<uint32_t>(pthread_self());
    say_external(record_.correlation_id);
    if (is_call_enabled(record_.kind, record_.cbid)) deliver(-1, record_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  uint32_t correlation() const { return record_.correlation_id; }
  uint64_t start() const { return record_.start; }
  void fails(uint32_t result) { record_.return_value = result; }

 private:
  ApiRecord record_;
};

}  // namespace cupti_sim

// What programs call, of sim_cuda.cpp.
SIM_API int simSetDevice(int device);
SIM_API int simLaunch(const char* name, uint32_t stream, uint64_t ns);
SIM_API int simMemcpy(uint8_t kind, uint64_t bytes, uint32_t stream);
SIM_API int simMemset(uint32_t value, uint64_t bytes, uint32_t stream);
SIM_API uint32_t simEventCreate();
SIM_API int simEventRecord(uint32_t event, uint32_t stream);
SIM_API int simStreamWaitEvent(uint32_t stream, uint32_t event);
SIM_API int simStreamSynchronize(uint32_t stream);
SIM_API int simDeviceSynchronize();
