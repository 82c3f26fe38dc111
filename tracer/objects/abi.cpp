#include "tracer/objects/abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace torchprof::torch {
namespace {

struct Symbol {
  const char* name;
  const char* for_people;
};
constexpr Symbol kAddCallback{"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", "at::addGlobalCallback"};
constexpr Symbol kRemoveCallback{"_ZN2at14removeCallbackEm", "at::removeCallback"};
constexpr Symbol kName{"_ZNK2at14RecordFunction4nameEv", "RecordFunction::name"};
constexpr Symbol kNumInputs{"_ZNK2at14RecordFunction10num_inputsEv", "RecordFunction::num_inputs"};
constexpr Symbol kCurrentThread{"_ZN2at14RecordFunction15currentThreadIdEv", "RecordFunction::currentThreadId"};
constexpr Symbol kSetAsync{"_ZN2at14RecordFunction9_setAsyncEv", "RecordFunction::_setAsync"};

// torch's libraries are loaded with RTLD_LOCAL, so only a walk over the loaded objects finds them. Debian adds a
// version to the name: libtorch_cpu.so.1.13.
int is_torch(dl_phdr_info* info, size_t, void* out) noexcept {
  const char* path = info->dlpi_name;
  if (!path || !*path) return 0;
  const char* slash = strrchr(path, '/');
  if (strncmp(slash ? slash + 1 : path, "libtorch_cpu.so", 15) != 0) return 0;
  snprintf(static_cast<char*>(out), sizeof(Api::library), "%s", path);
  return 1;
}

// "2.6.0" -> 206
unsigned parse_version(const char* text) noexcept {
  unsigned major = 0, minor = 0;
  return sscanf(text, "%u.%u", &major, &minor) == 2 && minor < 100 ? major * 100 + minor : 0;
}

// Debian has the version in the library's name, wheels in torch/version.py beside torch/lib, the C++ distribution in
// build-version beside lib.
void find_version(Api& api) noexcept {
  api.version_source = "neither the library's name nor a file beside it says it";
  if (const char* suffix = strstr(api.library, ".so.")) api.version = parse_version(suffix + 4);
  if (api.version) {
    api.version_source = "in the library's name";
    return;
  }
  const char* slash = strrchr(api.library, '/');
  if (!slash) return;
  for (const char* name : {"../version.py", "../build-version"}) {
    char path[320];
    snprintf(path, sizeof(path), "%.*s/%s", static_cast<int>(slash - api.library), api.library, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    char text[4096];
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) continue;
    text[n] = 0;
    const char* at = strstr(text, "__version__ = '");
    api.version = parse_version(at ? at + strlen("__version__ = '") : text);
    if (!api.version) continue;
    api.version_source = name[3] == 'v' ? "in version.py" : "in build-version";
    return;
  }
}

void probe(Api& api, void* set_async) noexcept {
  if (!set_async) return;
  alignas(64) static unsigned char object[1024];
  memset(object, 0, sizeof(object));
  reinterpret_cast<void (*)(void*)>(set_async)(object);
  long at = -1;
  for (size_t i = 0; i < sizeof(object); ++i) {
    if (!object[i]) continue;
    if (at >= 0 || object[i] != 1) return;
    at = static_cast<long>(i);
  }
  api.async_at = at;
  for (const Row& row : record_function_rows())
    if (static_cast<long>(row.is_async) == at) api.row = &row;
}

}  // namespace

bool loaded() noexcept {
  char path[sizeof(Api::library)];
  return dl_iterate_phdr(is_torch, path) != 0 || dlsym(RTLD_DEFAULT, kAddCallback.name) != nullptr;
}

bool find(Api& api, const char** why) noexcept {
  *why = nullptr;
  // A program that links everything into one object has the symbols in the global scope.
  void* library = RTLD_DEFAULT;
  if (dl_iterate_phdr(is_torch, api.library)) {
    library = dlopen(api.library, RTLD_LAZY | RTLD_NOLOAD);  // never closed: torch stays, and so do our callbacks
    if (!library) return false;
  } else if (!dlsym(RTLD_DEFAULT, kAddCallback.name)) {
    return false;
  }
  api.symbols = library;
  const auto find_in = [&](const Symbol& symbol) {
    void* found = dlsym(library, symbol.name);
    const size_t used = strlen(api.missing);
    if (!found) snprintf(api.missing + used, sizeof(api.missing) - used, "%s%s", used ? ", " : "", symbol.for_people);
    return found;
  };
  api.add_callback = reinterpret_cast<uint64_t (*)(Callback)>(find_in(kAddCallback));
  api.remove_callback = reinterpret_cast<void (*)(uint64_t)>(find_in(kRemoveCallback));
  api.name = reinterpret_cast<const char* (*)(const RecordFunction*)>(find_in(kName));
  api.current_thread = reinterpret_cast<uint64_t (*)()>(find_in(kCurrentThread));
  api.num_inputs = reinterpret_cast<size_t (*)(const RecordFunction*)>(find_in(kNumInputs));
  find_version(api);
  probe(api, find_in(kSetAsync));
  // torch/csrc/inductor/aoti_torch/c/shim.h: sizes and strides since 2.1 or before, dim and type since 2.3 or so.
  api.tensor_dim = reinterpret_cast<decltype(api.tensor_dim)>(dlsym(library, "aoti_torch_get_dim"));
  api.tensor_sizes = reinterpret_cast<decltype(api.tensor_sizes)>(dlsym(library, "aoti_torch_get_sizes"));
  api.tensor_strides = reinterpret_cast<decltype(api.tensor_strides)>(dlsym(library, "aoti_torch_get_strides"));
  api.tensor_type = reinterpret_cast<decltype(api.tensor_type)>(dlsym(library, "aoti_torch_get_dtype"));
  api.undefined = dlsym(library, "_ZN3c1019UndefinedTensorImpl10_singletonE");
  Dl_info where;
  void* symbol = nullptr;
  if (api.undefined && dladdr1(api.undefined, &where, &symbol, RTLD_DL_SYMENT) && symbol)
    api.undefined_size = static_cast<const ElfW(Sym)*>(symbol)->st_size;
  if (api.undefined_size == 0) api.undefined = nullptr;
  api.batched = dlsym(library, "_ZTVN2at9functorch17BatchedTensorImplE");
  api.legacy_batched = dlsym(library, "_ZTVN2at17BatchedTensorImplE");
  api.functional = dlsym(library, "_ZTVN2at23FunctionalTensorWrapperE");
  if (!api.add_callback || !api.name)
    *why = "this torch does not export at::addGlobalCallback and at::RecordFunction::name";
  return true;
}

}  // namespace torchprof::torch
