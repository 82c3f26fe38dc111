// What a program does beside the runtime's common calls: the driver's own, calls of any number, and records that CUPTI
// makes without a call of the program.
#include "tests/cupti_sim/sim_device.h"

using namespace cupti_sim;

// cuLaunchKernel (307), cuLaunchKernelEx (652)
SIM_API int simDriverLaunch(uint32_t cbid, const char* name, uint32_t stream, uint64_t ns) {
  NEED_CUDA;
  const Call call(cbid, kDriver);
  return launch(name, stream, ns, call.correlation(), 0, 0);
}
// The runtime's launch as CUPTI shows it where both its call and the driver's in it are recorded.
SIM_API int simLaunchThroughBoth(const char* name, uint32_t stream, uint64_t ns) {
  NEED_CUDA;
  const Call outer(kLaunchKernel);
  const Call inner(307, kDriver, outer.correlation());
  return launch(name, stream, ns, outer.correlation(), 0, 0);
}
// A call that starts nothing, and returns `result`. kind: 4 the driver's, 5 the runtime's
SIM_API int simCall(uint32_t kind, uint32_t cbid, uint32_t result) {
  NEED_CUDA;
  Call call(cbid, kind);
  call.fails(result);
  return static_cast<int>(result);
}
// On the calling thread, `ns` until now; of the call that it made last.
SIM_API int simOverhead(uint32_t kind, uint64_t ns) {
  NEED_CUDA;
  OverheadRecord overhead;
  overhead.overhead_kind = kind;
  overhead.process_id = static_cast<uint32_t>(getpid());
  overhead.thread_id = static_cast<uint32_t>(pthread_self());
  overhead.end = now_ns();
  overhead.start = overhead.end - ns;
  if (is_enabled(overhead.kind)) deliver(-1, overhead);
  return 0;
}
// operation: 1 made, 2 destroyed, 3 trimmed
SIM_API int simMemoryPool(uint32_t operation, uint64_t address, uint64_t bytes, uint64_t used) {
  NEED_CUDA;
  const Call call(operation == 1 ? kMemPoolCreate : operation == 2 ? kMemPoolDestroy : kMemPoolTrimTo);
  PoolRecord pool;
  pool.operation = operation;
  pool.correlation_id = call.correlation();
  pool.process_id = static_cast<uint32_t>(getpid());
  pool.device_id = static_cast<uint32_t>(t_device);
  pool.address = address;
  pool.bytes = bytes;
  pool.utilized = used;
  pool.timestamp = now_ns();
  if (is_enabled(pool.kind)) deliver(-1, pool);
  return 0;
}
// A sample of the thread's device. kind: 1 speed, 2 temperature, 3 power, 4 cooling
SIM_API int simEnvironment(uint32_t kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e) {
  NEED_CUDA;
  const EnvironmentRecord sample{.device_id = static_cast<uint32_t>(t_device),
                                 .timestamp = now_ns(),
                                 .environment_kind = kind,
                                 .values = {a, b, c, d, e}};
  if (is_enabled(sample.kind)) deliver(t_device, sample);
  return 0;
}
