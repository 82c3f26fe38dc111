// CUDA's side of the simulation: devices, streams, kernels that take their time and end in any order, in functions that
// test programs call (by ctypes, too). Each call is an API call of CUDA's runtime with its real number, and what it
// starts shares its correlation.
//
// A stream is a number, as CUPTI has it: 7 is a device's default stream. Times in ns. In CUPTI_SIM:
// `late_records=N`: what runs on a device is handed over N ms after its end; `zero=N`: each Nth kernel comes without
// times; `calls=N`: a launch asks N - 1 questions first; `pageable=1`: the host's memory is not pinned; `slowinit=N`:
// cuInit takes N ms more, after its injection was called; `early=N`: what runs on a device says that it did so N ns
// before.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/cupti_sim/sim_device.h"

namespace cupti_sim {
namespace {

constexpr int kDevices = 16;
constexpr uint64_t kLaunchLatency = 3000;

struct Pending {
  uint64_t end;
  uint32_t kind;
  Slot slot;
  union {
    KernelRecord kernel;
    MemcpyRecord copy;
    PeerRecord peer;
    MemsetRecord set;
  };
};

// With times of 0, as a record is before its work has ended.
template <class R>
Slot open_without_times(R record) {
  record.start = record.end = 0;
  return open_record(&record, record.kind);
}

struct Device {
  std::mutex completing;  // by whoever delivers: when he is done, what had ended is with CUPTI; taken before `lock`
  std::mutex lock;
  bool has_context = false;
  std::map<uint32_t, uint64_t> free_at;  // by stream
  std::map<uint32_t, int32_t> priority;  // of streams that have one
  std::vector<Pending> pending;
};

struct Cuda {
  std::atomic<int> devices{0};
  std::atomic<bool> is_dead{false};   // in a child that was forked after cuInit
  std::atomic<bool> is_ready{false};  // cuInit has returned: the driver answers what it is asked
  std::atomic<uint32_t> correlation{0};
  std::atomic<uint32_t> streams{12};
  std::atomic<uint32_t> events{0};
  std::atomic<uint64_t> kernels{0};
  Device device[kDevices];
};
Cuda& cuda() {
  static auto* the = new Cuda;
  return *the;
}
// What has ended is closed, in any order.
void complete(int number, bool gives_up) {
  static thread_local std::minstd_rand random(42);
  Device& d = cuda().device[number];
  const std::lock_guard completing(d.completing);
  std::vector<Pending> ended;
  {
    const std::lock_guard lock(d.lock);
    static const auto late = static_cast<uint64_t>(setting("late_records", 0)) * 1'000'000;
    const uint64_t now = now_ns();
    const auto split = std::partition(d.pending.begin(), d.pending.end(),
                                      [&](const Pending& p) { return !gives_up && p.end + late > now; });
    ended.assign(split, d.pending.end());
    d.pending.erase(split, d.pending.end());
    for (Pending& p : ended)
      if (p.end > now && p.kind == 10) p.kernel.end = 0;
  }
  std::shuffle(ended.begin(), ended.end(), random);
  for (const Pending& p : ended) close_record(p.slot, static_cast<const void*>(&p.kernel));
}

void run_devices() {
  pthread_setname_np(pthread_self(), "simulated GPU");
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < cuda().devices; ++i) complete(i, false);
  }
}

template <class R>
void place(R& record, uint32_t stream, uint32_t correlation) {
  record.device_id = static_cast<uint32_t>(t_device);
  record.context_id = static_cast<uint32_t>(t_device) + 1;
  record.stream_id = stream;
  record.correlation_id = correlation;
}

// With the device's lock: when it runs on its stream.
template <class R>
void schedule(Device& d, R& record, uint64_t ns) {
  uint64_t& free_at = d.free_at[record.stream_id];
  record.start = std::max(now_ns() + kLaunchLatency, free_at);
  record.end = free_at = record.start + ns;
  static const auto early = static_cast<uint64_t>(setting("early", 0));
  record.start -= early;
  record.end -= early;
}

void say_context(Device& d) {
  if (d.has_context) return;
  d.has_context = true;
  context_made();
  ContextRecord context;
  context.context_id = static_cast<uint32_t>(t_device) + 1;
  context.device_id = static_cast<uint32_t>(t_device);
  if (is_enabled(context.kind)) deliver(t_device, context);
}

template <class R>
int submit(R record, R Pending::*member, uint64_t ns) {
  Device& d = cuda().device[t_device];
  const std::lock_guard lock(d.lock);
  say_context(d);
  schedule(d, record, ns);
  if (!is_enabled(record.kind)) return 0;
  Pending pending{record.end, record.kind, open_without_times(record), {}};
  pending.*member = record;
  d.pending.push_back(pending);
  return 0;
}

struct Names {
  std::mutex lock;
  std::map<std::string, char*, std::less<>> all;
};
Names& names() {
  static auto* the = new Names;
  return *the;
}

// A kernel's name is CUPTI's own and outlives the program's copy: Python's is gone when the exit handlers flush. Each
// is mapped by itself: who reads it after cuptiFinalize crashes.
const char* kept(const char* name) {
  const std::lock_guard guard(names().lock);
  char*& copy = names().all[name];
  if (!copy) {
    const size_t size = std::strlen(name) + 1;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    copy = static_cast<char*>(std::memcpy(memory, name, size));
  }
  return copy;
}

uint64_t idle_at(uint32_t stream) {
  Device& d = cuda().device[t_device];
  const std::lock_guard lock(d.lock);
  if (stream != UINT32_MAX) return d.free_at[stream];
  uint64_t latest = 0;
  for (const auto& [number, at] : d.free_at) latest = std::max(latest, at);
  return latest;
}

void wait(uint32_t stream, uint32_t type, uint32_t event, const Call& call) {
  const uint64_t until = idle_at(stream), now = now_ns();
  if (until > now && type != 2) std::this_thread::sleep_for(std::chrono::nanoseconds(until - now));
  if (type == 4) complete(t_device, false);
  SyncRecord sync;
  sync.type = type;
  sync.start = call.start();
  sync.end = host_now();
  sync.correlation_id = call.correlation();
  sync.context_id = static_cast<uint32_t>(t_device) + 1;
  sync.stream_id = stream;
  sync.event_id = event;
  if (is_enabled(sync.kind)) deliver(-1, sync);
}

}  // namespace

thread_local int t_device = 0;

bool is_ready() { return cuda().devices > 0 && !cuda().is_dead; }
int device_count() { return cuda().devices; }
uint32_t next_correlation() { return ++cuda().correlation; }

int launch(const char* name, uint32_t stream, uint64_t ns, uint32_t correlation, uint32_t graph, uint64_t node) {
  static const long zero = setting("zero", 0);
  KernelRecord kernel;
  kernel.name = kept(name);
  kernel.grid_x = 32;
  kernel.block_x = 256;
  kernel.registers_per_thread = 32;
  kernel.static_shared_memory = 1024;
  kernel.graph_id = graph;
  kernel.graph_node_id = node;
  place(kernel, stream, correlation);
  Device& d = cuda().device[t_device];
  const std::lock_guard lock(d.lock);
  say_context(d);
  schedule(d, kernel, ns);
  if (const auto it = d.priority.find(stream); it != d.priority.end()) kernel.priority = it->second;
  if (!is_enabled(kernel.kind)) return 0;
  Pending pending{kernel.end, kernel.kind, open_without_times(kernel), {}};
  if (zero != 0 && ++cuda().kernels % static_cast<uint64_t>(zero) == 0) kernel.start = kernel.end = 0;
  pending.kernel = kernel;
  d.pending.push_back(pending);
  return 0;
}

void make_context() {
  Device& d = cuda().device[t_device];
  const std::lock_guard lock(d.lock);
  say_context(d);
}

void complete_pending() {
  for (int i = 0; i < cuda().devices; ++i) complete(i, false);
}

void give_up_pending() {
  for (int i = 0; i < cuda().devices; ++i) complete(i, true);
}

void say_devices() {
  for (int i = 0; i < cuda().devices; ++i) {
    DeviceRecord device;
    device.id = static_cast<uint32_t>(i);
    device.name = "Simulated A100";
    deliver(i, device);
  }
}

void forget_names() {
  const std::lock_guard guard(names().lock);
  for (const auto& [name, copy] : names().all) munmap(copy, name.size() + 1);
  names().all.clear();
}

}  // namespace cupti_sim

bool cupti_sim::is_initialized() { return cuda().devices > 0; }

using namespace cupti_sim;

// cuInit, with `devices` of them.
SIM_API int simInit(int devices) {
  Cuda& c = cuda();
  if (c.is_dead) return kNotInitialized;
  if (c.devices > 0) return 0;
  c.devices = std::min(devices, kDevices);
  std::thread(run_devices).detach();
  pthread_atfork(nullptr, nullptr, [] { cuda().is_dead = true; });
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  void* library = path ? dlopen(path, RTLD_LAZY) : nullptr;
  void* entry = library ? dlsym(library, "InitializeInjection") : nullptr;
  if (entry) reinterpret_cast<int (*)()>(entry)();
  std::this_thread::sleep_for(std::chrono::milliseconds(setting("slowinit", 0)));
  c.is_ready = true;
  return 0;
}
SIM_API int cuDeviceGet(int* device, int ordinal) {
  check_caller(__func__);
  if (!cuda().is_ready || cuda().is_dead) return kNotInitialized;
  if (ordinal < 0 || ordinal >= cuda().devices) return kInvalidDevice;
  *device = 100 + ordinal;  // not to be taken for its number
  return 0;
}
SIM_API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  check_caller(__func__);
  if (!cuda().is_ready || cuda().is_dead) return kNotInitialized;
  if (device < 100 || attribute != 97) return kInvalidDevice;
  if (const long result = setting(__func__, 0); result != 0) return static_cast<int>(result);
  *value = (163 << 10) - 1024 * (device - 100);
  return 0;
}
SIM_API int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  check_caller(__func__);
  if (!cuda().is_ready || cuda().is_dead) return kNotInitialized;
  if (device < 100) return kInvalidDevice;
  *flags = 0;
  *active = cuda().device[device - 100].has_context;
  return 0;
}
SIM_API int cuDriverGetVersion(int* out) {
  *out = version() == 18 ? 11080 : version() == 22 ? 12040 : version() == 130000 ? 13000 : 13010;
  return 0;
}
SIM_API int cudaRuntimeGetVersion(int* out) { return cuDriverGetVersion(out); }
SIM_API int simSetDevice(int device) {
  NEED_CUDA;
  t_device = device;
  return 0;
}
SIM_API uint32_t simStreamCreate() { return ++cuda().streams; }
SIM_API int simStreamPriority(uint32_t stream, int32_t priority) {
  Device& d = cuda().device[t_device];
  const std::lock_guard lock(d.lock);
  d.priority[stream] = priority;
  return 0;
}
SIM_API int simLaunch(const char* name, uint32_t stream, uint64_t ns) {
  NEED_CUDA;
  // What torch asks before a launch: of the calls of a step on an H100, 21 for each launch, half of them of the driver.
  static const long asked = setting("calls", 1);
  for (long i = 1; i < asked; ++i) const Call call(i % 2 ? kGetDevice : kCtxGetCurrent, i % 2 ? kRuntime : kDriver);
  const Call call(kLaunchKernel);
  return launch(name, stream, ns, call.correlation(), 0, 0);
}
SIM_API int simGraphLaunch(const char* name, uint32_t nodes, uint32_t stream, uint64_t ns) {
  NEED_CUDA;
  const Call call(kGraphLaunch);
  for (uint32_t i = 0; i < nodes; ++i) launch(name, stream, ns, call.correlation(), 5, (uint64_t{5} << 32) + i);
  return 0;
}
// kind: 1 host to device, 2 device to host, 8 on the device
SIM_API int simMemcpy(uint8_t kind, uint64_t bytes, uint32_t stream) {
  NEED_CUDA;
  const Call call(kMemcpyAsync);
  MemcpyRecord copy;
  copy.copy_kind = kind;
  static const uint8_t host = setting("pageable", 0) != 0 ? 1 : 2;  // or pinned
  copy.src_kind = kind == 1 ? host : 3;
  copy.dst_kind = kind == 2 ? host : 3;
  copy.flags = 1;
  copy.bytes = bytes;
  place(copy, stream, call.correlation());
  return submit(copy, &Pending::copy, bytes / 10 + 500);
}
SIM_API int simMemcpyPeer(int to, uint64_t bytes, uint32_t stream) {
  NEED_CUDA;
  const Call call(kMemcpyPeerAsync);
  PeerRecord peer;
  peer.bytes = bytes;
  place(peer, stream, call.correlation());
  peer.src_device_id = peer.device_id;
  peer.src_context_id = peer.context_id;
  peer.dst_device_id = static_cast<uint32_t>(to);
  peer.dst_context_id = static_cast<uint32_t>(to) + 1;
  return submit(peer, &Pending::peer, bytes / 20 + 500);
}
SIM_API int simMemset(uint32_t value, uint64_t bytes, uint32_t stream) {
  NEED_CUDA;
  const Call call(kMemsetAsync);
  MemsetRecord set;
  set.value = value;
  set.bytes = bytes;
  place(set, stream, call.correlation());
  return submit(set, &Pending::set, bytes / 100 + 500);
}
SIM_API int simMalloc(uint64_t address, uint64_t bytes, int frees) {
  NEED_CUDA;
  const Call call(frees ? kFree : kMalloc);
  MemoryRecord memory;
  memory.operation = frees ? 2 : 1;
  memory.address = address;
  memory.bytes = bytes;
  memory.timestamp = host_now();
  memory.device_id = static_cast<uint32_t>(t_device);
  memory.context_id = static_cast<uint32_t>(t_device) + 1;
  memory.correlation_id = call.correlation();
  if (is_enabled(memory.kind)) deliver(-1, memory);
  return 0;
}
SIM_API uint32_t simEventCreate() { return ++cuda().events; }
SIM_API int simEventRecord(uint32_t event, uint32_t stream) {
  NEED_CUDA;
  const Call call(kEventRecord);
  EventRecord record;
  record.event_id = event;
  record.stream_id = stream;
  record.context_id = static_cast<uint32_t>(t_device) + 1;
  record.correlation_id = call.correlation();
  if (is_enabled(record.kind)) deliver(-1, record);
  return 0;
}
SIM_API int simStreamWaitEvent(uint32_t stream, uint32_t event) {
  NEED_CUDA;
  const Call call(kStreamWaitEvent);
  wait(stream, 2, event, call);
  return 0;
}
SIM_API int simEventSynchronize(uint32_t event) {
  NEED_CUDA;
  const Call call(kEventSynchronize);
  wait(UINT32_MAX, 1, event, call);
  return 0;
}
SIM_API int simStreamSynchronize(uint32_t stream) {
  NEED_CUDA;
  const Call call(kStreamSynchronize);
  wait(stream, 3, UINT32_MAX, call);
  return 0;
}
SIM_API int simDeviceSynchronize() {
  NEED_CUDA;
  const Call call(kDeviceSynchronize);
  wait(UINT32_MAX, 4, UINT32_MAX, call);
  return 0;
}
// `threads` of them launch `each` kernels of 1 us, on `streams` streams of `devices` devices. The mean ns of a launch.
SIM_API double simStorm(int threads, int each, int streams, int devices) {
  std::vector<std::thread> running;
  std::atomic<uint64_t> ns{0};
  for (int t = 0; t < threads; ++t)
    running.emplace_back([=, &ns] {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < each; ++i) {
        t_device = (t + i) % devices;
        simLaunch(i % 2 ? "_Z4evenv" : "_Z3oddv",
                  20 + static_cast<uint32_t>(t * each + i) % static_cast<uint32_t>(streams), 1000);
      }
      ns += static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());
    });
  for (std::thread& thread : running) thread.join();
  for (int d = 0; d < devices; ++d) {
    t_device = d;
    simDeviceSynchronize();
  }
  return static_cast<double>(ns) / (static_cast<double>(threads) * each);
}
