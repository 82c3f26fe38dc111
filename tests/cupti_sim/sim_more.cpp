// What a program does beside the runtime's common calls: the driver's own, calls of any number, and records that CUPTI
// makes without a call of the program.
#include <chrono>
#include <thread>
#include <vector>

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
// A call that takes `ns`, as the first one of its kind. If there is no context yet, it makes it.
SIM_API int simSlowCall(uint32_t kind, uint32_t cbid, uint64_t ns) {
  NEED_CUDA;
  const Call call(cbid, kind);
  make_context();
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  return 0;
}
// On the calling thread, `ns` until now; of the call that it made last.
SIM_API int simOverhead(uint32_t kind, uint64_t ns) {
  NEED_CUDA;
  OverheadRecord overhead;
  overhead.overhead_kind = kind;
  overhead.process_id = static_cast<uint32_t>(getpid());
  overhead.thread_id = static_cast<uint32_t>(pthread_self());
  overhead.end = host_now();
  overhead.start = overhead.end - ns;
  if (is_enabled(overhead.kind)) deliver(-1, overhead);
  return 0;
}
// `threads` of them launch `each` kernels of 1 us, on `streams` streams of `devices` devices; each 50th launch is
// followed by a copy, each 100th by a memset, each 500th by an event that the next stream waits for, and by a wait for
// its own.
SIM_API void simMixedStorm(int threads, int each, int streams, int devices) {
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t)
    running.emplace_back([=] {
      const uint32_t event = simEventCreate();
      for (int i = 0; i < each; ++i) {
        simSetDevice((t + i) % devices);
        const auto stream = [&](int n) { return 20 + static_cast<uint32_t>((t * each + n) % streams); };
        simLaunch(i % 2 ? "_Z4evenv" : "_Z3oddv", stream(i), 1000);
        if (i % 50 == 49) simMemcpy(i % 100 == 99 ? 1 : 2, 4096, stream(i));
        if (i % 100 == 99) simMemset(0, 4096, stream(i));
        if (i % 500 != 499) continue;
        simEventRecord(event, stream(i));
        simStreamWaitEvent(stream(i + 1), event);
        simStreamSynchronize(stream(i));
      }
    });
  for (std::thread& thread : running) thread.join();
  for (int d = 0; d < devices; ++d) {
    simSetDevice(d);
    simDeviceSynchronize();
  }
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
  pool.timestamp = host_now();
  if (is_enabled(pool.kind)) deliver(-1, pool);
  return 0;
}
// A sample of the thread's device. kind: 1 speed, 2 temperature, 3 power, 4 cooling
// Whether somebody has asked for all records of a kind.
SIM_API int simIsEnabled(uint32_t kind) { return is_enabled(kind); }

// As `date -s` does it.
SIM_API void simSetWallClock(int64_t by) { set_clock() += by; }

SIM_API int simEnvironment(uint32_t kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e) {
  NEED_CUDA;
  const EnvironmentRecord sample{.device_id = static_cast<uint32_t>(t_device),
                                 .timestamp = host_now(),
                                 .environment_kind = kind,
                                 .values = {a, b, c, d, e}};
  if (is_enabled(sample.kind)) deliver(t_device, sample);
  return 0;
}
