#include "inject/nvtx_entry.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>

#include "cupti/nvtx/nvtx.h"
#include "inject/imports.h"
#include "inject/preload.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

constexpr char kOn[] = "the program's ranges and marks";
bool g_has_client = false;

bool is_our_library(const char* path) noexcept {
  Dl_info ours;
  if (!dladdr(reinterpret_cast<const void*>(&note_injection), &ours) || !ours.dli_fname) return false;
  if (strcmp(path, ours.dli_fname) == 0) return true;
  struct stat a, b;
  return stat(path, &a) == 0 && stat(ours.dli_fname, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

void note_client() noexcept {
  g_has_client = true;
  session::note_source("nvtx", SourceState::kOn, kOn);
}

void note_injection(const Config& config) noexcept {
  const char* path = nvtx_injection();
  char why[session::kNoteSize];
  if (config.nvtx == NvtxMode::kOff)
    snprintf(why, sizeof(why), "switched off (--nvtx off)");
  else if (path && !is_our_library(path))
    snprintf(why, sizeof(why), "%s is %s, which keeps it", kNvtxInjection, path);
  else
    return;
  session::note_source("nvtx", SourceState::kOff, why);
}

void prepare_nvtx_late(const Config& config) noexcept {
  Dl_info ours;
  if (config.nvtx == NvtxMode::kOff) return note_injection(config);
  const bool has_file = dladdr(reinterpret_cast<const void*>(&note_injection), &ours) && ours.dli_fname &&
                        strncmp(ours.dli_fname, "/proc/", 6) != 0;
  if (g_has_client)
    session::note_source("nvtx", SourceState::kOn, kOn);
  else if (is_loaded("libcuda.so") || is_loaded("libnvToolsExt.so"))
    session::note_source("nvtx", SourceState::kOff,
                         has_file ? "torchprof was attached: libraries that had called NVTX before are not heard"
                                  : "torchprof was attached, and has no file that NVTX could load");
  if (has_file && !offer_nvtx(ours.dli_fname)) note_injection(config);
}

}  // namespace torchprof::inject

// If it returns 0, the client's calls do nothing from then on.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(torchprof::nvtx::GetExportTable get) {
  using namespace torchprof;
  const KeepErrno keep;
  const session::State state = session::state();
  const bool is_attached_to =
      inject::is_late() && (state == session::State::kArmed || state == session::State::kCapturing);
  if (!is_attached_to && (!wanted_by_environment() || !inject::arm_once())) return 0;
  if (session::config().nvtx == NvtxMode::kOff || !nvtx::attach(get)) return 0;
  inject::note_client();
  return 1;
}
