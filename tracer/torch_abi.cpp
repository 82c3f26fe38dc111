#include "tracer/torch_abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace torchprof::torch {
namespace {

// Range in which the row holds; [M] measured, [S] read in the header. Test: the probe below in every process, tests/e2e
// on 1.13.1.
constexpr Row kRows[] = {
    {200, 248, 256, 264, 208, "1.13 to 2.3, C++11 strings"},    // 1.13.1 [M]
    {176, 224, 232, 240, 184, "1.13 to 2.3, old strings"},      // 1.13.1 [M]
    {200, 304, 312, 320, 208, "2.4 and later, C++11 strings"},  // 2.6.0, 2.14.1 [M]
    {176, 280, 288, 296, 184, "2.4 to 2.6, old strings"},       // 2.6.0 [M]
};

constexpr char kAddCallback[] = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
constexpr char kName[] = "_ZNK2at14RecordFunction4nameEv";
constexpr char kNumInputs[] = "_ZNK2at14RecordFunction10num_inputsEv";
constexpr char kCurrentThread[] = "_ZN2at14RecordFunction15currentThreadIdEv";
constexpr char kSetAsync[] = "_ZN2at14RecordFunction9_setAsyncEv";

// torch's libraries are loaded with RTLD_LOCAL: only a walk over the objects finds them. Debian adds a version:
// libtorch_cpu.so.1.13.
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

// Debian has it in the library's name, wheels in torch/version.py beside torch/lib, the C++ distribution in
// build-version beside lib.
unsigned find_version(const char* library) noexcept {
  if (const char* suffix = strstr(library, ".so."); suffix && parse_version(suffix + 4))
    return parse_version(suffix + 4);
  const char* slash = strrchr(library, '/');
  if (!slash) return 0;
  for (const char* name : {"../version.py", "../build-version"}) {
    char path[320];
    snprintf(path, sizeof(path), "%.*s/%s", static_cast<int>(slash - library), library, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    char text[4096];
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) continue;
    text[n] = 0;
    const char* at = strstr(text, "__version__ = '");
    if (const unsigned version = parse_version(at ? at + strlen("__version__ = '") : text)) return version;
  }
  return 0;
}

const Row* probe(void* set_async) noexcept {
  if (!set_async) return nullptr;
  alignas(64) static unsigned char object[1024];
  memset(object, 0, sizeof(object));
  reinterpret_cast<void (*)(void*)>(set_async)(object);
  const Row* found = nullptr;
  for (size_t i = 0; i < sizeof(object); ++i) {
    if (!object[i]) continue;
    if (found || object[i] != 1) return nullptr;
    for (const Row& row : kRows)
      if (row.is_async == i) found = &row;
    if (!found) return nullptr;
  }
  return found;
}

}  // namespace

bool loaded() noexcept {
  char path[sizeof(Api::library)];
  return dl_iterate_phdr(is_torch, path) != 0 || dlsym(RTLD_DEFAULT, kAddCallback) != nullptr;
}

bool find(Api& api, const char** why) noexcept {
  *why = nullptr;
  // A program that links everything into one object has the symbols in the global scope.
  void* library = RTLD_DEFAULT;
  if (dl_iterate_phdr(is_torch, api.library)) {
    library = dlopen(api.library, RTLD_LAZY | RTLD_NOLOAD);  // never given back: torch stays, and so do our callbacks
    if (!library) return false;
  } else if (!dlsym(RTLD_DEFAULT, kAddCallback)) {
    return false;
  }
  api.add_callback = reinterpret_cast<uint64_t (*)(Callback)>(dlsym(library, kAddCallback));
  api.name = reinterpret_cast<const char* (*)(const RecordFunction*)>(dlsym(library, kName));
  api.current_thread = reinterpret_cast<uint64_t (*)()>(dlsym(library, kCurrentThread));
  if (!api.add_callback || !api.name) {
    *why = "this torch does not export at::addGlobalCallback and at::RecordFunction::name";
    return true;
  }
  api.num_inputs = reinterpret_cast<size_t (*)(const RecordFunction*)>(dlsym(library, kNumInputs));
  api.version = find_version(api.library);
  api.row = probe(dlsym(library, kSetAsync));
  return true;
}

}  // namespace torchprof::torch
