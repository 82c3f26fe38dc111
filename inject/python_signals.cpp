#include "inject/python_signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "inject/method_table.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/offsets.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::Object;

using Handler = void (*)(int);
std::atomic<Handler> g_theirs[NSIG];
std::atomic<int>* g_eval_breaker = nullptr;
FastArgs g_signal = nullptr;

void on_signal(int number) {
  if (const Handler theirs = g_theirs[number].load(std::memory_order_relaxed)) theirs(number);  // errno is kept there
  if (torchprof::seal::is_sealed() || syscall(SYS_gettid) != getpid()) return;
  if (api().current_thread() && !python::holds_gil()) g_eval_breaker->store(0, std::memory_order_relaxed);
}

// Adds a step after the handler of the signal, if that is a function of one argument.
void stand_behind(long number) noexcept {
  struct sigaction action;
  if (number <= 0 || number >= NSIG || sigaction(static_cast<int>(number), nullptr, &action) != 0) return;
  if ((action.sa_flags & SA_SIGINFO) || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
      action.sa_handler == on_signal)
    return;
  g_theirs[number].store(action.sa_handler, std::memory_order_relaxed);
  action.sa_handler = on_signal;
  sigaction(static_cast<int>(number), &action, nullptr);
}

// signal.signal(number, handler)
Object* set_signal(Object* self, Object* const* args, python::Size count) {
  Object* result = g_signal(self, args, count);
  if (!result || count != 2) return result;
  const python::KeepError keep;
  const KeepErrno keep_errno;
  stand_behind(api().as_long(args[0]));
  api().error_clear();
  return result;
}

bool find_eval_breaker() noexcept {
  char* interpreter = reinterpret_cast<char*>(api().main_interpreter());
  const auto recursion_limit = reinterpret_cast<int (*)()>(python::symbol("Py_GetRecursionLimit"));
  if (!interpreter || !recursion_limit) return false;
  int limit = 0;
  memcpy(&limit, interpreter + python::kRecursionLimit311, sizeof(limit));
  auto* breaker = reinterpret_cast<std::atomic<int>*>(interpreter + python::kEvalBreaker311);
  const int value = breaker->load(std::memory_order_relaxed);
  if (limit != recursion_limit() || (value != 0 && value != 1)) return false;
  g_eval_breaker = breaker;
  return true;
}

}  // namespace

void keep_signals_harmless() noexcept {
  static OnceATurn once;
  if (once.is_done() || api().minor != 11 || !api().current_thread) return;
  const python::KeepError keep;
  const KeepErrno keep_errno;
  Object* module = api().dict_get(api().modules(), "_signal");  // borrowed
  if (!module) return;
  once.done();
  if (!find_eval_breaker() || !put_behind(module, "signal", python::kMethFastCall, &set_signal, g_signal))
    session::note_source("signals", SourceState::kFailed,
                         "a signal while the main thread waits in C may stop other threads: docs/limits.md, Python");
  else
    stand_behind(SIGINT);  // Python itself has set its handler
  api().error_clear();
}

void leave_signals() noexcept {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    const Handler theirs = g_theirs[number].load(std::memory_order_relaxed);
    if (!theirs || sigaction(number, nullptr, &action) != 0 || action.sa_handler != on_signal) continue;
    action.sa_handler = theirs;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace torchprof::inject
