// The library's constructor and destructor. In a process that is not to be traced (a shell, git, a compiler) the
// constructor looks up one variable and a few symbols, and leaves nothing behind.
#include "inject/preload.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cupti/cupti_api.h"
#include "cupti/cupti_source.h"
#include "cupti/nvtx/nvtx_emit.h"
#include "inject/cuda_entry.h"
#include "inject/exec.h"
#include "inject/identity.h"
#include "inject/late/attach.h"
#include "inject/nvtx_entry.h"
#include "inject/python_entry.h"
#include "inject/seccomp_entry.h"
#include "tracer/config/config.h"
#include "tracer/config/run_directory.h"
#include "tracer/door_socket.h"
#include "tracer/objects/abi.h"
#include "tracer/process/diag.h"
#include "tracer/python/abi.h"
#include "tracer/python/calls.h"
#include "tracer/sampler/sampler.h"
#include "tracer/session.h"
#include "tracer/torch/memory.h"
#include "tracer/torch/operators.h"
#include "tracer/window.h"

namespace torchprof::inject {

bool resolve_output(const Config& config, char (&output)[PATH_MAX], ErrorText& error) noexcept {
  char expanded[PATH_MAX];
  if (!expand_output(config.output, expanded, sizeof(expanded), error)) return false;
  char here[PATH_MAX] = "";
  if (expanded[0] != '/' && !getcwd(here, sizeof(here))) here[0] = 0;
  const int n = snprintf(output, sizeof(output), "%s%s%s", here, *here ? "/" : "", expanded);
  if (n >= 0 && static_cast<size_t>(n) < sizeof(output)) return true;
  return refuse(error, "TORCHPROF_OUTPUT: the name of the run directory is too long");
}

namespace {

// Notes what somebody would look for in the trace and not find: an AMD GPU of this machine.
void note_what_is_missing(const Config& config) noexcept {
  constexpr char kMissing[] = "AMD GPUs are not supported in this version";
  if (config.gpu != GpuMode::kOff && access("/dev/kfd", F_OK) == 0)
    session::note_source("gpu", SourceState::kOff, kMissing);
}

// Where several users are armed by one environment, the directory is that of the first; the others have each one beside
// it.
void take_own_directory(char (&output)[PATH_MAX]) noexcept {
  struct stat status {};
  if (lstat(output, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid == geteuid()) return;
  const size_t used = strlen(output);
  if (snprintf(output + used, sizeof(output) - used, "-%u", static_cast<unsigned>(geteuid())) >=
      static_cast<int>(sizeof(output) - used))
    output[used] = 0;
}

// What the environment says, read once. By one thread at a time.
struct Wanted {
  Config config;
  char output[PATH_MAX];
  bool is_understood;
  ErrorText error, unknown;
};
const Wanted& wanted() noexcept {
  static Wanted w;
  static bool is_read = false;
  if (std::exchange(is_read, true)) return w;
  w.is_understood = from_environment(w.config, w.error, is_armed_by_environment() ? &w.unknown : nullptr) &&
                    resolve_output(w.config, w.output, w.error);
  return w;
}

// What a child would expand otherwise, or see from another directory, is settled here: then both write into one run.
void settle_output() noexcept {
  if (!is_armed_by_environment()) return;
  const Wanted& w = wanted();
  ErrorText ignored;
  if (!w.is_understood || (w.config.output[0] == '/' && is_shared_output(w.config.output, ignored))) return;
  char pattern[2 * PATH_MAX];
  char* to = pattern;
  for (const char* from = w.output; *from; *to++ = *from++)
    if (*from == '%') *to++ = '%';
  *to = 0;
  set_environment_output(pattern);
}

}  // namespace

void arm_session(const Config& config, const char* output) noexcept {
  session::arm(config, output);
  static bool follow_window = false;
  if (!std::exchange(follow_window, true)) {
    // In the order in which they are told that the window opens.
    cupti::follow_window();
    torch::follow_window();
    python::follow_window();
  }
  window::start(config);
  note_what_is_missing(config);
}

namespace {

void arm() noexcept {
  const bool is_armed = is_armed_by_environment();
  if (is_armed) speak_once_a_host(environment_output());
  const Wanted& w = wanted();
  if (!w.is_understood) {
    warn_once(Cause::kConfig, "%s; this process is not profiled", w.error.text);
    return;
  }
  const Config& config = w.config;
  char output[PATH_MAX];
  strcpy(output, w.output);
  const bool is_with_attached = is_started_by_attached(output);
  if (is_with_attached && is_attach_over(output)) return;
  if (is_armed) take_own_directory(output);
  arm_session(config, output);
  if (*w.unknown.text) session::note_source("settings", SourceState::kOff, w.unknown.text);
  note_injection(config);
  if (config.nvtx == NvtxMode::kEmit) nvtx::emit_operators();
  const bool has_python = python::present(), has_torch = torch::loaded();
  if (!has_python && !has_torch) {
    window::announce(window::Found::kTorch);
    if (!cupti::is_cuda_program()) return;
  }
  prepare_cuda(true);
  torch::start_memory();
  if (has_python && !python::is_running() && !hook_start())
    tell_once_a_run(
        Cause::kPython, About::kLoss,
        "Python calls are not recorded: the interpreter's table of built-in modules is not what this version knows");
  torch::attach_if_loaded();
  if (is_with_attached) leave_on_command(output);
}

bool g_is_late = false;

__attribute__((constructor)) void start() noexcept {
  const KeepErrno keep;
  g_is_late = python::is_running();
  prepare_identity();
  find_exec();
  find_seccomp();
  if (!wanted_by_environment()) return;
  if (python::present() || torch::loaded() || cupti::is_cuda_program()) settle_output();
  prepare_exec();
  if (python::present() || torch::loaded() || cupti::is_cuda_program()) arm_once();
}

__attribute__((destructor)) void end() noexcept {
  if (session::state() == session::State::kOff) return;
  sampler::end();
  window::end_door();
  session::finish();
}

}  // namespace

bool is_late() noexcept { return g_is_late; }

void arm_for_python() noexcept {
  const KeepErrno keep;
  if (wanted_by_environment()) arm_once();
}

bool arm_once() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, arm);
  const session::State state = session::state();
  return state == session::State::kArmed || state == session::State::kCapturing;
}

}  // namespace torchprof::inject
