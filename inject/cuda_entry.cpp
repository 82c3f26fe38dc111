#include "inject/cuda_entry.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cupti/cupti_abi.h"
#include "cupti/cupti_source.h"
#include "cupti/shared_cupti.h"
#include "inject/imports.h"
#include "inject/late/replaced.h"
#include "inject/method_table.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

// torch._C._cuda_init(): every use of CUDA from Python calls it before its first kernel. METH_NOARGS in 1.13 to 2.14
// (torch/csrc/cuda/Module.cpp).
NoArgs g_cuda_init = nullptr;

python::Object* cuda_init(python::Object* self, python::Object* none) {
  python::Object* result = g_cuda_init(self, none);
  if (result) cupti::start();
  return result;
}

// os._exit(status), which also ends multiprocessing's forked children. METH_FASTCALL | METH_KEYWORDS in 3.10 to 3.15.
FastKeywords g_exit = nullptr;

python::Object* exit_now(python::Object* self, python::Object* const* args, python::Size count, python::Object* names) {
  cupti::process_exits_now();
  return g_exit(self, args, count, names);
}

// ---- other clients of CUPTI -----------------------------------------------------------------------------------------

// libkineto is in libtorch_cpu, which is linked with CUPTI; other clients may be, too. The functions of CUPTI that such
// a library imports are replaced by ours (cupti/shared_cupti.h).
constexpr char kCupti[] = "libcupti.so";

int (*g_register_callbacks)(cupti::RequestBuffer, cupti::BufferCompleted) = nullptr;
int (*g_enable_kind)(uint32_t) = nullptr;
int (*g_disable_kind)(uint32_t) = nullptr;
int (*g_flush_all)(uint32_t) = nullptr;
int (*g_finalize)() = nullptr;
int (*g_set_clock)(uint64_t (*)()) = nullptr;  // since 11.6
int (*g_read_clock)(uint64_t*) = nullptr;
int (*g_runtime_call)(uint32_t, uint8_t) = nullptr;  // since 12.5, as the next
int (*g_driver_call)(uint32_t, uint8_t) = nullptr;
int (*g_subscribe)(void*, void*, void*) = nullptr;

int register_callbacks(cupti::RequestBuffer request, cupti::BufferCompleted completed) {
  return cupti::other_registers(request, completed, g_register_callbacks);
}
int enable(uint32_t kind) { return cupti::other_enables(kind, g_enable_kind); }
int disable(uint32_t kind) { return cupti::other_disables(kind, g_disable_kind); }
int flush_all(uint32_t flag) { return cupti::other_flushes(flag, g_flush_all); }
int finalize() { return cupti::other_finalizes(g_finalize); }
int set_clock(uint64_t (*clock)()) { return cupti::other_sets_clock(clock, g_set_clock); }

int read_clock(uint64_t* time) { return cupti::other_reads_clock(time, g_read_clock); }

int runtime_call(uint32_t cbid, uint8_t on) {
  return cupti::other_switches_call(cupti::abi::kRuntime, cbid, on != 0, g_runtime_call);
}
int driver_call(uint32_t cbid, uint8_t on) {
  return cupti::other_switches_call(cupti::abi::kDriver, cbid, on != 0, g_driver_call);
}

int subscribe(void* subscriber, void* callback, void* data) {
  cupti::expect_subscriber();
  return g_subscribe(subscriber, callback, data);
}

}  // namespace

void share_cupti() noexcept {
  static Redirect redirects[10];
  static size_t count = 0;
  static bool has_all = false;
  static Visited visited;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (session::state() == session::State::kOff || session::config().gpu == GpuMode::kOff) return;
  const KeepErrno keep;
  if (pthread_mutex_trylock(&lock) != 0) return;  // another thread does it; in a forked child nobody would unlock it
  if (count == 0 && is_loaded(kCupti)) {
    const auto stand_before = [](const char* name, auto replacement, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_symbol(kCupti, name));
      if (function) redirects[count++] = {name, reinterpret_cast<void*>(replacement)};
      return function != nullptr;
    };
    // If one were missing, the other client's records or ours would be lost.
    has_all = stand_before("cuptiActivityRegisterCallbacks", register_callbacks, g_register_callbacks) &&
              stand_before("cuptiActivityEnable", enable, g_enable_kind) &&
              stand_before("cuptiActivityDisable", disable, g_disable_kind) &&
              stand_before("cuptiActivityFlushAll", flush_all, g_flush_all) &&
              stand_before("cuptiFinalize", finalize, g_finalize) &&
              stand_before("cuptiSubscribe", subscribe, g_subscribe);
    stand_before("cuptiActivityRegisterTimestampCallback", set_clock, g_set_clock);
    stand_before("cuptiGetTimestamp", read_clock, g_read_clock);
    stand_before("cuptiActivityEnableRuntimeApi", runtime_call, g_runtime_call);
    stand_before("cuptiActivityEnableDriverApi", driver_call, g_driver_call);
  }
  if (has_all) redirect_imports_of_users(kCupti, redirects, count, visited);
  pthread_mutex_unlock(&lock);
}

void watch_cuda(python::Object* module) noexcept {
  using python::api;
  if (session::config().gpu == GpuMode::kOff) return;
  static OnceATurn exit_once, init_once;
  if (!exit_once.is_done()) {
    exit_once.done();
    put_behind(api().dict_get(api().modules(), "posix"), "_exit", python::kMethFastCall | python::kMethKeywords,
               &exit_now, g_exit);
  }
  if (init_once.is_done() || !is_named(module, "torch._C")) return;
  init_once.done();
  put_behind(module, "_cuda_init", python::kMethNoArgs, &cuda_init, g_cuda_init);
}

bool is_cuda_running() noexcept {
  // cuDeviceGetCount(int*): CUDA_ERROR_NOT_INITIALIZED before cuInit().
  const auto count = reinterpret_cast<int (*)(int*)>(find_symbol("libcuda.so", "cuDeviceGetCount"));
  int devices = 0;
  return count && count(&devices) == 0;
}

void watch_interpreters_end() noexcept {
  static bool is_watched = false;
  if (std::exchange(is_watched, true)) return;
  // The last thing that Py_FinalizeEx() does. After a Ctrl-C that nobody caught, the process dies right after it.
  if (session::config().gpu != GpuMode::kOff && python::api().at_exit)
    python::api().at_exit([] { cupti::interpreter_ended(); });
}

void prepare_cuda(bool asks_driver) noexcept {
  if (!asks_driver) return cupti::prepare(nullptr);
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&prepare_cuda), &self) && self.dli_fname) cupti::prepare(self.dli_fname);
}

}  // namespace torchprof::inject

// The driver calls it in cuInit, in the library that CUDA_INJECTION64_PATH names; anything but 0 counts as success
// (CUPTI's sample cupti_trace_injection).
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  torchprof::inject::share_cupti();  // a program without Python loads no extension modules
  torchprof::cupti::start();
  return 1;
}
