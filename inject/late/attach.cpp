#include "inject/late/attach.h"

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "cupti/cupti_source.h"
#include "inject/cuda_entry.h"
#include "inject/exec.h"
#include "inject/exec_environment.h"
#include "inject/imports.h"
#include "inject/late/late_memory.h"
#include "inject/nvtx_entry.h"
#include "inject/preload.h"
#include "inject/python_entry.h"
#include "tracer/config/config.h"
#include "tracer/config/run_directory.h"
#include "tracer/process/diag.h"
#include "tracer/process/own_thread.h"
#include "tracer/process/seal.h"
#include "tracer/python/calls.h"
#include "tracer/python/code.h"
#include "tracer/sampler/sampler.h"
#include "tracer/session.h"
#include "tracer/torch/memory.h"
#include "tracer/window.h"
#include "tracer/window_thread.h"

TorchprofAnswer torchprof_answer = {};

namespace torchprof::inject {
namespace {

constexpr size_t kMostSettings = 16384;

// By one thread at a time.
void answer(uint64_t serial, const char* why, const char* lines) noexcept {
  const int used = snprintf(torchprof_answer.text, sizeof(torchprof_answer.text), "%s%.400s\n", why ? "error: " : "ok",
                            why ? why : "");
  snprintf(torchprof_answer.text + used, sizeof(torchprof_answer.text) - static_cast<size_t>(used), "%.600s", lines);
  // Pairs with the read of another process, which takes the text when it sees the number.
  __atomic_store_n(&torchprof_answer.serial, serial, __ATOMIC_RELEASE);
}

// What the process starts from now on belongs to the run, whatever its own window is, until we leave: is_attach_over().
void pass_on(const char* settings, const char* output, bool is_held) noexcept {
  if (!is_held)
    return session::note_source("started programs", SourceState::kOff, "torchprof came while the program ran");
  static char variables[kMostSettings + 3UL * PATH_MAX], launched[PATH_MAX + 256], attached[PATH_MAX + 64];
  size_t used = 0;
  const auto add = [&](const char* text, size_t length) {
    if (used + length + 2 > sizeof(variables)) return;
    memcpy(variables + used, text, length);
    used += length;
    variables[used++] = '\n';
  };
  for (size_t length = 0; *settings; settings += length + (settings[length] == '\n')) {
    length = strcspn(settings, "\n");
    if (length > 0 && strncmp(settings, "TORCHPROF_WINDOW=", 17) != 0) add(settings, length);
  }
  write_launched(output, launched);
  snprintf(attached, sizeof(attached), "%s=%s", kAttached, output);
  for (const char* const each : std::initializer_list<const char*>{"TORCHPROF_WINDOW=all", launched, attached})
    add(each, strlen(each));
  variables[used] = 0;
  if (!prepare_exec_late(variables))
    session::note_source("started programs", SourceState::kOff,
                         "torchprof was attached while the program ran, and has no file that they could load");
}

void leave_with_gil() noexcept {
  withdraw_nvtx();
  leave();
}

// On the window's thread. What it does in the interpreter waits for the GIL.
bool detach() noexcept {
  sampler::end();
  // A thread that opens or closes the window just now may have to wait for the GIL.
  constexpr int kMostTries = 1000, kPauseMs = 5;
  int tries = 0;
  while (!window::leave_process()) {
    if (++tries == kMostTries) return false;
    poll(nullptr, 0, kPauseMs);
  }
  if (is_late()) forget_variables();
  if (!python::with_gil(leave_with_gil))
    torch::switch_memory(false);  // the interpreter has ended: nobody calls what is left in it
  session::disarm();
  return true;
}

char g_output[PATH_MAX];
bool is_alone() noexcept { return is_attach_certainly_over(g_output); }

const char* arm_with(const char* settings, ErrorText& error) noexcept {
  static Config config;
  char output[PATH_MAX];
  if (seal::is_sealed()) return "the program is in a seccomp that kills it for system calls";
  if (!session::can_arm())
    return session::state() == session::State::kOff
               ? "the records of an earlier attach were lost, which later ones build on"
               : "it is being recorded already";
  if (!read_settings(settings, config, output, error)) return error.text;
  arm_session(config, output);
  if (!session::open_spool()) {
    window::leave_process();
    session::disarm();
    return "nothing can be recorded";
  }
  // Not where the program itself has called us, or the file system has no locks.
  const bool is_held = !is_attach_over(output);
  pass_on(settings, output, is_held);
  prepare_nvtx_late(config);
  prepare_cuda(false);
  torch::start_memory();
  enter();
  if (is_cuda_running()) cupti::start();
  strcpy(g_output, output);
  window::when_told_to_leave(detach, is_held ? is_alone : nullptr);
  return window::open_door() ? nullptr : "no thread could be started";
}

// False: it was passed over.
bool attach(const char* settings) noexcept {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const KeepErrno keep;
  char* rest = nullptr;
  uint64_t serial = strtoull(settings, &rest, 10);
  if (pthread_mutex_trylock(&lock) != 0) return false;  // the other one answers
  static uint64_t last = 0;
  if (*settings == '\n') serial = last + 1;
  if (serial <= last || serial <= __atomic_load_n(&torchprof_answer.cancelled, __ATOMIC_RELAXED)) {
    pthread_mutex_unlock(&lock);
    return false;
  }
  last = serial;
  const char* const lines = keep_lines();
  ErrorText error;
  answer(serial, arm_with(rest, error), lines);
  pthread_mutex_unlock(&lock);
  return true;
}

// ---- without the GIL ------------------------------------------------------------------------------------------------

char g_settings[kMostSettings];

// Inside of a frame of Python, by which what is known of frames is checked.
python::Object* attach_in_frame(python::Object*, python::Object*) {
  attach(g_settings);
  using python::Object;
  auto* const none = static_cast<Object*>(python::symbol("_Py_NoneStruct"));
  const auto incref = reinterpret_cast<void (*)(Object*)>(python::symbol("Py_IncRef"));
  if (incref) incref(none);
  return none;
}

// api() may not have been filled yet.
template <class F>
F find(const char* name) noexcept {
  return reinterpret_cast<F>(python::symbol(name));
}

void attach_with_gil() noexcept {
  using python::Object;
  const auto ensure = find<int (*)()>("PyGILState_Ensure");
  const auto release = find<void (*)(int)>("PyGILState_Release");
  const auto is_initialized = find<int (*)()>("Py_IsInitialized");
  auto is_finalizing = find<int (*)()>("Py_IsFinalizing");
  if (!is_finalizing) is_finalizing = find<int (*)()>("_Py_IsFinalizing");
  const auto new_function = find<Object* (*)(python::MethodDef*, Object*, Object*)>("PyCFunction_NewEx");
  const auto new_dict = find<Object* (*)()>("PyDict_New");
  const auto set = find<int (*)(Object*, const char*, Object*)>("PyDict_SetItemString");
  const auto compile = find<Object* (*)(const char*, const char*, int)>("Py_CompileString");
  const auto run = find<Object* (*)(Object*, Object*, Object*)>("PyEval_EvalCode");
  const auto decref = find<void (*)(Object*)>("Py_DecRef");
  const auto clear = find<void (*)()>("PyErr_Clear");
  const uint64_t serial = strtoull(g_settings, nullptr, 10);
  if (!ensure || !release || !is_initialized || !new_function || !new_dict || !set || !compile || !run || !decref ||
      !clear || !is_initialized() || (is_finalizing && is_finalizing()))
    return answer(serial, "its interpreter has not started, or is ending", "");
  const int state = ensure();
  static python::MethodDef definition = {"attach", reinterpret_cast<void*>(attach_in_frame), python::kMethNoArgs,
                                         nullptr};
  Object* const function = new_function(&definition, nullptr, nullptr);
  Object* const globals = new_dict();
  Object* result = nullptr;
  constexpr int kEvalInput = 258;  // Py_eval_input, Include/compile.h
  Object* const code = compile("attach()", python::kOwnFile, kEvalInput);
  if (function && globals && code && set(globals, "attach", function) == 0) result = run(code, globals, globals);
  if (!result) clear();
  for (Object* const each : {function, globals, code, result})
    if (each) decref(each);
  release(state);
}

constinit std::atomic<bool> g_is_arming{false};

void arm_in_thread() noexcept {
  attach_with_gil();
  g_is_arming.store(false, std::memory_order_relaxed);  // publishes nothing: the thread is joined
}
constinit OwnThread g_arming("torchprof", arm_in_thread, []() noexcept {});

}  // namespace

void leave_on_command(const char* output) noexcept {
  snprintf(g_output, sizeof(g_output), "%s", output);
  window::when_told_to_leave(detach, is_alone);
  window::open_door();
}

const char* attach_from_program(const char* settings) noexcept {
  return attach(settings) ? torchprof_answer.text : nullptr;
}

bool read_settings(const char* text, Config& config, char (&output)[PATH_MAX], ErrorText& error) noexcept {
  config = Config{};
  if (!from_text(config, text, error) || !resolve_output(config, output, error)) return false;
  return strcmp(config.window, "auto") != 0 ||
         refuse(error, "TORCHPROF_WINDOW: 'auto' is for programs that are recorded from their start");
}

}  // namespace torchprof::inject

extern "C" void torchprof_attach(const char* settings) { torchprof::inject::attach(settings); }

extern "C" void torchprof_attach_soon(const char* settings) {
  using namespace torchprof::inject;
  const torchprof::KeepErrno keep;
  if (g_is_arming.exchange(true, std::memory_order_relaxed)) return;  // an earlier request waits for the GIL yet
  g_arming.end();                                                     // it is over: no more than a join
  snprintf(g_settings, sizeof(g_settings), "%s", settings);
  if (!g_arming.start()) answer(strtoull(settings, nullptr, 10), "no thread could be started", "");
}
