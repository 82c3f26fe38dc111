#include "cupti/cupti_api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cupti/cupti_abi.h"

namespace torchprof::cupti {
namespace {

struct Mapped {
  const char* prefix;  // of the file's name
  char path[256];
};

int is_it(dl_phdr_info* info, size_t, void* data) noexcept {
  auto& mapped = *static_cast<Mapped*>(data);
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
  if (!slash || strncmp(slash + 1, mapped.prefix, strlen(mapped.prefix)) != 0) return 0;
  snprintf(mapped.path, sizeof(mapped.path), "%s", info->dlpi_name);
  return 1;
}

// The path of a mapped library; empty: there is none.
Mapped mapped(const char* prefix) noexcept {
  Mapped result{prefix, ""};
  dl_iterate_phdr(is_it, &result);
  return result;
}

void* open_mapped(const char* prefix, char (&path)[256]) noexcept {
  const Mapped found = mapped(prefix);
  if (!*found.path) return nullptr;
  memcpy(path, found.path, sizeof(path));
  return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

// Places of the libcupti that belongs to the process's libcudart, whose folder is %.*s: in wheels
// nvidia/cuda_runtime/lib or nvidia/cu13/lib, in a toolkit lib64.
constexpr const char* kBesideRuntime[] = {"%.*s/../../cuda_cupti/lib/libcupti.so.%ld", "%.*s/libcupti.so.%ld",
                                          "%.*s/../extras/CUPTI/lib64/libcupti.so.%ld"};

void* open_beside_runtime(char (&path)[256]) noexcept {
  const Mapped runtime = mapped("libcudart.so.");
  const char* slash = strrchr(runtime.path, '/');
  if (!slash) return nullptr;
  const long major = strtol(slash + strlen("/libcudart.so."), nullptr, 10);
  for (const char* pattern : kBesideRuntime) {
    snprintf(path, sizeof(path), pattern, static_cast<int>(slash - runtime.path), runtime.path, major);
    if (void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL)) return handle;
  }
  snprintf(path, sizeof(path), "libcupti.so.%ld", major);
  return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

// First one that is in the process, then one that belongs to its CUDA, then any.
void* open_library(char (&path)[256]) noexcept {
  if (void* handle = open_mapped("libcupti.so", path)) return handle;
  void* torch = open_mapped("libtorch_cpu.so", path);  // built with a static CUPTI
  if (torch && dlsym(torch, "cuptiActivityEnable")) return torch;
  return open_beside_runtime(path);
}

// Looks in `library`, then in the mapped library whose name begins with `other`.
void* symbol(void* library, const char* other, const char* name) noexcept {
  if (void* found = dlsym(library, name)) return found;
  char path[256];
  void* handle = open_mapped(other, path);
  return handle ? dlsym(handle, name) : nullptr;
}

template <class Function>
bool get(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

bool is_cuda_program() noexcept {
  return *mapped("libcuda.so").path || *mapped("libcudart.so").path || *mapped("libcupti.so").path;
}

bool find(Api& api, const char** why) noexcept {
  api = {};
  void* library = open_library(api.library);
  if (!library) {
    *why = "the program has no libcupti, and none lies beside its CUDA";
    return false;
  }
  if (!get(library, "cuptiGetVersion", api.get_version) || !get(library, "cuptiGetTimestamp", api.get_timestamp) ||
      !get(library, "cuptiActivityRegisterCallbacks", api.register_callbacks) ||
      !get(library, "cuptiActivityEnable", api.enable) || !get(library, "cuptiActivityDisable", api.disable) ||
      !get(library, "cuptiActivityFlushAll", api.flush_all) ||
      !get(library, "cuptiActivityGetNextRecord", api.next_record) ||
      !get(library, "cuptiActivityGetNumDroppedRecords", api.dropped) ||
      !get(library, "cuptiSubscribe", api.subscribe) || !get(library, "cuptiUnsubscribe", api.unsubscribe)) {
    *why = "its libcupti lacks a function that every version has";
    return false;
  }
  get(library, "cuptiActivityEnableRuntimeApi", api.enable_runtime_call);
  get(library, "cuptiActivityEnableDriverApi", api.enable_driver_call);
  get(library, "cuptiActivityRegisterTimestampCallback", api.set_clock);
  get(library, "cuptiGetResultString", api.result_string);
  get(library, "cuptiGetThreadIdType", api.thread_id_type);
  api.driver_version =
      reinterpret_cast<decltype(api.driver_version)>(symbol(library, "libcuda.so", "cuDriverGetVersion"));
  api.device = reinterpret_cast<decltype(api.device)>(symbol(library, "libcuda.so", "cuDeviceGet"));
  api.device_attribute =
      reinterpret_cast<decltype(api.device_attribute)>(symbol(library, "libcuda.so", "cuDeviceGetAttribute"));
  api.context_state =
      reinterpret_cast<decltype(api.context_state)>(symbol(library, "libcuda.so", "cuDevicePrimaryCtxGetState"));
  api.runtime_version =
      reinterpret_cast<decltype(api.runtime_version)>(symbol(library, "libcudart.so", "cudaRuntimeGetVersion"));
  // From 13.3 on it is CUPTI_ERROR_UNKNOWN where no driver is, and 13.2.86 crashes there: so only after cuInit.
  if (api.get_version(&api.version) != abi::kSuccess) {
    *why = "its libcupti does not tell its version (is there a driver for this CUDA?)";
    return false;
  }
  if (api.version >= abi::kOldest && api.version <= abi::kNewest) return true;
  *why = "this version of CUPTI is not one that this torchprof knows";
  return false;
}

}  // namespace torchprof::cupti
