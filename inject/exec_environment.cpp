#include "inject/exec_environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tracer/config/config.h"
#include "tracer/config/program_file.h"
#include "tracer/config/run_directory.h"

namespace torchprof::inject {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD";
constexpr std::string_view kOutput = "TORCHPROF_OUTPUT";
constexpr std::string_view kOurs = "TORCHPROF_";
constexpr std::string_view kPythonPath = "PYTHONPATH";
constexpr std::string_view kCudaInjection = "CUDA_INJECTION64_PATH";  // we set it ourselves
constexpr std::string_view kPythonFolder = "python";                  // beside the library, on PYTHONPATH

struct Saved {
  std::string_view library;  // in `text`; empty: nothing is put back
  size_t count = 0;
  const char* settings[32];  // "TORCHPROF_...=...", and NVTX's variable if it names the library; in `text`
  char text[4 * PATH_MAX];   // the run directory is named up to three times
  uid_t user;
  bool is_armed;  // no launcher has chosen the user
};
constinit Saved g_saved{};
// Whether g_saved is there, for threads that start programs: stores pair with the load in keeps_environment().
constinit std::atomic<bool> g_is_saved{false};

std::string_view name_of(std::string_view entry) noexcept { return entry.substr(0, entry.find('=')); }

const char* find(char* const* environment, std::string_view name) noexcept {
  for (; environment && *environment; ++environment)
    if (name_of(*environment) == name && (*environment)[name.size()] == '=') return *environment;
  return nullptr;
}

// The next entry of a list that ld.so takes: colons or spaces. False at its end.
bool next_entry(std::string_view& list, std::string_view& entry) noexcept {
  const size_t begin = list.find_first_not_of(": ");
  if (begin == std::string_view::npos) return false;
  list.remove_prefix(begin);
  entry = list.substr(0, list.find_first_of(": "));
  list.remove_prefix(entry.size());
  return true;
}

bool has_library(std::string_view list) noexcept {
  for (std::string_view entry; next_entry(list, entry);)
    if (entry == g_saved.library) return true;
  return false;
}

std::string_view preload_of(char* const* environment) noexcept {
  const char* entry = find(environment, kPreload);
  return entry ? entry + kPreload.size() + 1 : std::string_view{};
}

// The value of AddressSanitizer's variable; nullptr: the option is in it already.
const char* asan_options_to_extend(char* const* environment) noexcept {
  const char* entry = find(environment, kAsanOptions);
  const char* value = entry ? entry + sizeof(kAsanOptions) : "";
  return strstr(value, kAsanOption) ? nullptr : value;
}

bool names_library(std::string_view entry, std::string_view variable, std::string_view library) noexcept {
  const std::string_view name = name_of(entry);
  return name == variable && name.size() < entry.size() && entry.substr(name.size() + 1) == library;
}

bool names_to_nvtx(std::string_view entry, std::string_view library) noexcept {
  return names_library(entry, kNvtxInjection, library);
}

// Whether this is the folder of our sitecustomize.py, which would load the library where LD_PRELOAD does not.
bool is_python_folder(std::string_view folder) noexcept {
  const std::string_view library = g_saved.library, above = library.substr(0, library.rfind('/') + 1);
  return folder.size() == above.size() + kPythonFolder.size() && folder.starts_with(above) &&
         folder.ends_with(kPythonFolder);
}

// Writes a PYTHONPATH without that folder to `out`, which may be nullptr. Returns the bytes written; 0: no other folder
// was on it.
size_t other_folders(std::string_view entry, char* out) noexcept {
  size_t used = 0;
  std::string_view left = entry.substr(kPythonPath.size());
  for (char separator = '='; !left.empty();) {
    left.remove_prefix(1);
    const std::string_view folder = left.substr(0, left.find(':'));
    left.remove_prefix(folder.size());
    if (is_python_folder(folder)) continue;
    if (out) {
      out[used] = separator;
      memcpy(out + used + 1, folder.data(), folder.size());
    }
    used += 1 + folder.size();
    separator = ':';
  }
  return used;
}

bool is_on_python_path(std::string_view entry) noexcept {
  return name_of(entry) == kPythonPath && kPythonPath.size() + other_folders(entry, nullptr) < entry.size();
}

// Entries that a program of another user must not have at all.
bool is_ours(std::string_view entry) noexcept {
  return name_of(entry).starts_with(kOurs) || names_to_nvtx(entry, g_saved.library) ||
         names_library(entry, kCudaInjection, g_saved.library);
}

bool has_ours(char* const* environment) noexcept {
  for (; environment && *environment; ++environment)
    if (is_ours(*environment) || is_on_python_path(*environment)) return true;
  return has_library(preload_of(environment));
}

bool is_disabled(char* const* environment) noexcept {
  const char* entry = find(environment, "TORCHPROF_DISABLE");
  const char* value = entry ? entry + strlen("TORCHPROF_DISABLE=") : "";
  return *value && strcmp(value, "0") != 0;
}

size_t length_of(char* const* environment) noexcept {
  size_t n = 0;
  while (environment && environment[n]) ++n;
  return n;
}

}  // namespace

void save_environment(const char* library) noexcept {
  Saved& saved = g_saved;
  if (getauxval(AT_SECURE) || !library || *library != '/') return;
  const size_t size = strlen(library) + 1;
  if (size > sizeof(saved.text)) return;
  memcpy(saved.text, library, size);
  size_t used = size;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (strncmp(*entry, "TORCHPROF_", 10) != 0 && !names_to_nvtx(*entry, library)) continue;
    const size_t n = strlen(*entry) + 1;
    if (used + n > sizeof(saved.text) || saved.count == sizeof(saved.settings) / sizeof(saved.settings[0])) return;
    memcpy(saved.text + used, *entry, n);
    saved.settings[saved.count++] = saved.text + used;
    used += n;
  }
  saved.user = geteuid();
  saved.is_armed = is_armed_by_environment();
  saved.library = {saved.text, size - 1};
  // We were not started by LD_PRELOAD but through sitecustomize: there is nothing that a child could lose.
  if (!has_library(preload_of(environ))) saved.library = {};
  g_is_saved.store(!saved.library.empty(), std::memory_order_release);  // pairs with keeps_environment()
}

bool save_variables(const char* library, const char* variables) noexcept {
  Saved& saved = g_saved;
  // A file of memory (attaching from outside of a container) is not there for a program that is started.
  if (!library || *library != '/' || strncmp(library, "/proc/", 6) == 0 || access(library, R_OK) != 0) return false;
  const size_t size = strlen(library) + 1;
  if (size + strlen(variables) >= sizeof(saved.text)) return false;
  memcpy(saved.text, library, size);
  saved.count = 0;
  for (char* to = saved.text + size; *variables;) {
    const size_t length = strcspn(variables, "\n");
    if (saved.count == sizeof(saved.settings) / sizeof(saved.settings[0])) return false;
    memcpy(to, variables, length);
    to[length] = 0;
    saved.settings[saved.count++] = to;
    to += length + 1;
    variables += length + (variables[length] == '\n');
  }
  saved.user = geteuid();
  saved.is_armed = false;
  saved.library = {saved.text, size - 1};
  g_is_saved.store(true, std::memory_order_release);  // pairs with keeps_environment()
  return true;
}

// Pairs with keeps_environment().
void forget_variables() noexcept { g_is_saved.store(false, std::memory_order_release); }

// Pairs with the stores above: what is saved is there.
bool keeps_environment() noexcept { return g_is_saved.load(std::memory_order_acquire); }

bool file_of_run(const char* name, char (&out)[PATH_MAX]) noexcept {
  const Saved& saved = g_saved;
  for (size_t i = 0; i < saved.count; ++i) {
    if (name_of(saved.settings[i]) != kOutput) continue;
    size_t used = 0;
    for (const char* c = saved.settings[i] + kOutput.size() + 1; *c; ++c) {
      if (*c == '%' && *++c != '%') return false;
      if (used + 1 == sizeof(out)) return false;
      out[used++] = *c;
    }
    const size_t size = strlen(name) + 1;
    if (*out != '/' || used + 1 + size > sizeof(out)) return false;
    out[used] = '/';
    memcpy(out + used + 1, name, size);
    return true;
  }
  return false;
}

bool has_changed_user() noexcept { return !g_saved.library.empty() && !g_saved.is_armed && geteuid() != g_saved.user; }

// Other errors (from a filter of system calls) count as true: ld.so may be able to open it.
bool has_library_file() noexcept {
  return access(g_saved.library.data(), R_OK) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES);
}

size_t room_for(char* const* environment, Preload preload) noexcept {
  const Saved& saved = g_saved;
  if (saved.library.empty()) return 0;
  const std::string_view list = preload_of(environment);
  size_t folders = 0;
  if (preload == Preload::kTakeAllOut || has_changed_user()) {
    if (!has_ours(environment)) return 0;
    preload = Preload::kTakeOut;
    if (const char* path = find(environment, kPythonPath)) folders = strlen(path) + 1;
  } else if (preload == Preload::kTakeOut) {
    if (!has_library(list)) return 0;
  } else {
    if (is_disabled(environment)) return 0;
    const bool is_told = preload == Preload::kPutBack || !asan_options_to_extend(environment);
    if (is_told && has_library(list) && find(environment, kOutput)) return 0;
  }
  size_t asan = 0;
  if (const char* old = preload == Preload::kPutBackWithAsan ? asan_options_to_extend(environment) : nullptr)
    asan = sizeof(kAsanOptions) + strlen(old) + 1 + sizeof(kAsanOption);
  return (length_of(environment) + saved.count + 3) * sizeof(char*) + kPreload.size() + list.size() +
         saved.library.size() + 3 + asan + folders;
}

char** with_library(char* const* environment, Preload preload, void* room) noexcept {
  const Saved& saved = g_saved;
  const size_t most = length_of(environment) + saved.count + 3;
  char** out = static_cast<char**>(room);
  char* text = reinterpret_cast<char*>(out + most);
  size_t n = 0;
  const bool takes_all_out = preload == Preload::kTakeAllOut || has_changed_user();
  if (takes_all_out) preload = Preload::kTakeOut;
  const char* asan = preload == Preload::kPutBackWithAsan ? asan_options_to_extend(environment) : nullptr;
  for (char* const* entry = environment; entry && *entry; ++entry) {
    if (name_of(*entry) == kPreload || (asan && name_of(*entry) == kAsanOptions)) continue;
    if (takes_all_out && is_ours(*entry)) continue;
    if (takes_all_out && is_on_python_path(*entry)) {
      memcpy(text, kPythonPath.data(), kPythonPath.size());
      const size_t folders = other_folders(*entry, text + kPythonPath.size());
      if (folders == 0) continue;
      out[n++] = text;
      text += kPythonPath.size() + folders;
      *text++ = 0;
      continue;
    }
    if (preload != Preload::kTakeOut || !names_to_nvtx(*entry, saved.library)) out[n++] = *entry;
  }
  // The program's own entries come first, ours last, as in the launcher.
  const auto put = [&text](std::string_view piece) {
    memcpy(text, piece.data(), piece.size());
    text += piece.size();
  };
  if (asan) {
    out[n++] = text;
    for (const char* piece : {kAsanOptions, "=", asan, *asan ? ":" : "", kAsanOption}) put(piece);
    *text++ = 0;
  }
  char* const line = text;
  put(kPreload);
  const char* separator = "=";
  std::string_view list = preload_of(environment);
  for (std::string_view entry; next_entry(list, entry);) {
    if (entry == saved.library) continue;
    put(separator);
    put(entry);
    separator = ":";
  }
  if (preload != Preload::kTakeOut) {
    put(separator);
    put(saved.library);
    // A child that has been given a run directory of its own has its own settings, too.
    for (size_t i = 0; i < saved.count && !find(environment, kOutput); ++i)
      if (name_of(saved.settings[i]) != kNvtxInjection || !find(environment, kNvtxInjection))
        out[n++] = const_cast<char*>(saved.settings[i]);
  }
  *text = 0;
  if (static_cast<size_t>(text - line) > kPreload.size()) out[n++] = line;
  out[n] = nullptr;
  return out;
}

char* const* with_us_disabled(char* const* environment, void* room, size_t size) noexcept {
  static char disable[] = "TORCHPROF_DISABLE=1";
  if (!find(environment, kOutput) || is_disabled(environment)) return environment;
  const size_t pointers = (length_of(environment) + 2) * sizeof(char*);
  const char* folders = find(environment, kPythonPath);
  if (pointers + (folders ? strlen(folders) + 1 : 0) > size) return environment;
  char** out = static_cast<char**>(room);
  char* text = static_cast<char*>(room) + pointers;
  for (; *environment; ++environment) {
    if (name_of(*environment) == "TORCHPROF_DISABLE") continue;
    if (*environment != folders || !is_on_python_path(folders)) {
      *out++ = *environment;
      continue;
    }
    // Without this, Python would make a __pycache__ in our folder.
    memcpy(text, kPythonPath.data(), kPythonPath.size());
    const size_t others = other_folders(folders, text + kPythonPath.size());
    text[kPythonPath.size() + others] = 0;
    if (others != 0) *out++ = text;
  }
  *out++ = disable;
  *out = nullptr;
  return static_cast<char**>(room);
}

}  // namespace torchprof::inject
