#include "inject/fast_ranges.h"

#include "inject/imports.h"
#include "inject/late/replaced.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"
#include "tracer/torch/operators.h"

namespace torchprof::inject {
namespace {

constexpr char kPythonLibrary[] = "libtorch_python.so", kLibrary[] = "libtorch_cpu.so";
// [M] 2.6.0, 2.14.1 and 2.15.0, [S] a version between them. A later one might use the pointer that it gets: its code is
// looked at first.
constexpr unsigned kFirstVersion = 201, kLastTried = 215;

constexpr char kHow[] = "_RecordFunctionFast of inductor, Triton and torch.compile, without inputs";

using Get = void* (*)(bool global);
using GetOfThread = void* (*)();
Get g_get = nullptr;                    // to 2.8 or so
GetOfThread g_get_of_thread = nullptr;  // later

// Stands for a profiler where there is none. Large enough in case somebody reads from it after all.
alignas(64) const unsigned char g_nobody[1024] = {};
void* nobody() noexcept { return const_cast<unsigned char*>(g_nobody); }

void* get(bool global) {
  void* theirs = g_get(global);
  return theirs || global ? theirs : nobody();
}

void* get_of_thread() {
  void* theirs = g_get_of_thread();
  return theirs ? theirs : nobody();
}

// Whether libtorch_python does more with what this function returns than to compare it with nullptr.
bool uses_the_answer(const char* function) noexcept {
  const ImportSlots found = find_imports_of(kPythonLibrary, function);
  if (found.count == 0) return false;
  return found.count == ImportSlots::kMost ||
         !processor::only_compares_with_null({found.code, found.code_count}, {found.slots, found.count});
}

OnceATurn g_settled;
bool g_is_redirected = false;  // in an earlier turn of the session

void settle(SourceState state, const char* text) noexcept {
  g_settled.done();
  if (state == SourceState::kFailed)
    tell_once_a_run(Cause::kTorch, About::kLoss, "ranges of inductor and Triton are not recorded: %s", text);
  session::note_source("fast ranges", state, text);
}

}  // namespace

void prepare_fast_ranges() noexcept {
  if (!session::config().ops)
    g_settled.done();
  else if (g_is_redirected)
    settle(SourceState::kOn, kHow);
  else if (is_loaded(kPythonLibrary))
    settle(SourceState::kOff, "torch was in the process before the capture");
}

void reach_fast_ranges() noexcept {
  if (g_settled.is_done() || torch::version() == 0 || !is_loaded(kPythonLibrary)) return;
  if (torch::version() < kFirstVersion) {
    g_settled.done();  // this torch has none
    return;
  }
  const KeepErrno keep;
  constexpr char kGet[] = "_ZN5torch8profiler4impl17ProfilerStateBase3getEb";
  constexpr char kGetOfThread[] = "_ZN5torch8profiler4impl17ProfilerStateBase6getTLSEv";
  g_get = reinterpret_cast<Get>(find_symbol(kLibrary, kGet));
  g_get_of_thread = reinterpret_cast<GetOfThread>(find_symbol(kLibrary, kGetOfThread));
  Redirect redirects[2];
  size_t count = 0;
  if (torch::version() > kLastTried) {
    if (uses_the_answer(kGet) || uses_the_answer(kGetOfThread)) {
      settle(SourceState::kFailed, "what _RecordFunctionFast of this torch does with a profiler is not known");
      return;
    }
  }
  if (g_get) redirects[count++] = {kGet, reinterpret_cast<void*>(get)};
  if (g_get_of_thread) redirects[count++] = {kGetOfThread, reinterpret_cast<void*>(get_of_thread)};
  g_is_redirected = redirect_imports_of(kPythonLibrary, redirects, count) > 0;
  if (g_is_redirected)
    settle(SourceState::kOn, kHow);
  else
    settle(SourceState::kFailed, "_RecordFunctionFast does not ask for a profiler in a way that is known");
}

}  // namespace torchprof::inject
