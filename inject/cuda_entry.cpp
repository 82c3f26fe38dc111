#include "inject/cuda_entry.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "cupti/cupti_source.h"
#include "inject/imports.h"
#include "inject/method_table.h"
#include "tracer/diag.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

// torch._C._cuda_init(): every use of CUDA from Python comes through it, before its first kernel. METH_NOARGS in 1.13
// to 2.14 (torch/csrc/cuda/Module.cpp).
NoArgs g_cuda_init = nullptr;

python::Object* cuda_init(python::Object* self, python::Object* none) {
  python::Object* result = g_cuda_init(self, none);
  if (result) cupti::start();
  return result;
}

// os._exit(status), by which multiprocessing's forked children end too. METH_FASTCALL | METH_KEYWORDS in 3.10 to 3.14.
FastKeywords g_exit = nullptr;

python::Object* exit_now(python::Object* self, python::Object* const* args, python::Size count, python::Object* names) {
  cupti::process_exits_now();
  return g_exit(self, args, count, names);
}

// ---- torch's own use of CUPTI ----------------------------------------------------------------------------

// libkineto, in libtorch_cpu, registers its callbacks and enables kinds when a profiler starts, and disables those
// kinds when it stops (libkineto/src/CuptiActivityApi.cpp, 2022 to 2026).
constexpr char kTorch[] = "libtorch_cpu.so", kCupti[] = "libcupti.so";

int (*g_register_callbacks)(void*, void*) = nullptr;
int (*g_enable)(uint32_t) = nullptr;
int (*g_disable)(uint32_t) = nullptr;
int (*g_subscribe)(void*, void*, void*) = nullptr;
std::atomic<uint64_t> g_theirs{0};  // kinds that it has enabled

constexpr uint64_t bit(uint32_t kind) { return kind < 64 ? uint64_t{1} << kind : 0; }

int register_callbacks(void* request, void* completed) {
  cupti::step_aside("torch.profiler");
  return g_register_callbacks(request, completed);
}

int enable(uint32_t kind) {
  g_theirs.fetch_or(bit(kind), std::memory_order_relaxed);
  return g_enable(kind);
}

int disable(uint32_t kind) {
  const int result = g_disable(kind);
  const uint64_t before = g_theirs.fetch_and(~bit(kind), std::memory_order_relaxed);
  if (before != 0 && (before & ~bit(kind)) == 0) cupti::come_back();
  return result;
}

int subscribe(void* subscriber, void* callback, void* data) {
  cupti::expect_subscriber();
  return g_subscribe(subscriber, callback, data);
}

}  // namespace

void share_cupti() noexcept {
  static bool done = false;
  if (done || !session::config().gpu || !is_loaded(kTorch)) return;
  done = true;
  const KeepErrno keep;
  const auto find = [](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_symbol(kCupti, name));
    return function != nullptr;
  };
  if (!find("cuptiActivityRegisterCallbacks", g_register_callbacks) || !find("cuptiActivityEnable", g_enable) ||
      !find("cuptiActivityDisable", g_disable) || !find("cuptiSubscribe", g_subscribe))
    return;
  const Redirect redirects[] = {{"cuptiActivityRegisterCallbacks", reinterpret_cast<void*>(register_callbacks)},
                                {"cuptiActivityEnable", reinterpret_cast<void*>(enable)},
                                {"cuptiActivityDisable", reinterpret_cast<void*>(disable)},
                                {"cuptiSubscribe", reinterpret_cast<void*>(subscribe)}};
  redirect_imports_of(kTorch, redirects, std::size(redirects));
}

void watch_cuda(python::Object* module) noexcept {
  using python::api;
  if (!session::config().gpu) return;
  static bool has_exit = false;
  if (!has_exit) {
    has_exit = true;
    put_behind(api().dict_get(api().modules(), "posix"), "_exit", python::kMethFastCall | python::kMethKeywords,
               &exit_now, g_exit);
  }
  if (g_cuda_init) return;
  const python::Ref name(api().get_attr(module, "__name__"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  const bool is_torch = text && strcmp(text, "torch._C") == 0;
  api().error_clear();
  if (is_torch) put_behind(module, "_cuda_init", python::kMethNoArgs, &cuda_init, g_cuda_init);
}

void watch_interpreters_end() noexcept {
  // The last of what Py_FinalizeEx() does; of a Ctrl-C that nobody caught the process dies right behind it.
  if (session::config().gpu && python::api().at_exit) python::api().at_exit([] { cupti::interpreter_ended(); });
}

void prepare_cuda() noexcept {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&prepare_cuda), &self) && self.dli_fname) cupti::prepare(self.dli_fname);
}

}  // namespace torchprof::inject

// The driver calls it in cuInit, in the library that CUDA_INJECTION64_PATH names; anything but 0 is taken for success
// (CUPTI's sample cupti_trace_injection).
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  torchprof::cupti::start();
  return 1;
}
