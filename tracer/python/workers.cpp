#include "tracer/python/workers.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "tracer/process/seal.h"
#include "tracer/python/modules.h"
#include "tracer/session.h"

namespace torchprof::python {
namespace {

// The process that has recorded each fact already. Guarded by the GIL.
pid_t g_named = 0;
pid_t g_numbered = 0;

// A variable of a module that has been imported, or nothing.
Object* variable(const char* module, const char* name) noexcept {
  Object* found = api().dict_get(api().modules(), module);  // borrowed
  return found ? api().get_attr(found, name) : nullptr;
}

bool is_something(const Ref& value) noexcept { return value && value.get() != api().none; }

long number_attribute(Object* object, const char* name) noexcept {
  const Ref value(own_attribute(object, name));
  return value ? api().as_long(value.get()) : -1;
}

// The name of a function of this kind, as far as they are told apart here.
enum class Follows : uint8_t { kRole, kBootstrap, kEnd, kSignal };
Follows follows(Frame* frame) noexcept {
  const Ref code(api().frame_code(frame));
  const Ref name(api().get_attr(code.get(), "co_name"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  if (!text) return Follows::kRole;
  if (strcmp(text, "_bootstrap") == 0) return Follows::kBootstrap;
  if (strcmp(text, "poll") == 0 || strcmp(text, "_handle_exitstatus") == 0) return Follows::kEnd;
  if (strcmp(text, "_send_signal") == 0 || strcmp(text, "send_signal") == 0) return Follows::kSignal;
  return Follows::kRole;
}

void record_name(pid_t pid, const Ref& process) noexcept {
  const Ref name(own_attribute(process.get(), "_name"));
  Size size = 0;
  const char* text = name ? api().utf8(name.get(), &size) : nullptr;
  if (!text) return;
  char fact[280];
  constexpr int kMost = 200;  // of the name
  snprintf(fact, sizeof(fact), "%d\t%.*s", static_cast<int>(pid), static_cast<int>(std::min<Size>(size, kMost)), text);
  session::define_fact("multiprocessing.process", fact);
  g_named = pid;
}

void record_number(pid_t pid) noexcept {
  const Ref info(variable("torch.utils.data._utils.worker", "_worker_info"));
  if (!is_something(info)) return;
  const long number = number_attribute(info.get(), "id"), count = number_attribute(info.get(), "num_workers");
  if (number < 0 || count < 0) return;
  char fact[80];
  snprintf(fact, sizeof(fact), "%d\t%ld\t%ld", static_cast<int>(pid), number, count);
  session::define_fact("dataloader.worker", fact);
  g_numbered = pid;
}

// What is known of a child of this process. A later child in the same place takes it. Guarded by the GIL.
struct ChildState {
  pid_t pid = 0;
  bool is_signalled = false, is_told = false;
};
ChildState g_children[1024];
int g_told = 0;

ChildState& state_of(pid_t child) noexcept {
  ChildState& state = g_children[static_cast<size_t>(child) % std::size(g_children)];
  if (state.pid != child) state = {.pid = child};
  return state;
}

// `popen`: of multiprocessing or subprocess. Its function begins or ends.
void record_child(Object* popen, bool is_signal) noexcept {
  const long child = popen ? number_attribute(popen, "pid") : -1;
  if (child <= 0) return;
  ChildState& state = state_of(static_cast<pid_t>(child));
  const Ref status(own_attribute(popen, "returncode"));
  if (!is_something(status)) {
    state.is_told = false;  // another child, with the number of one before
    state.is_signalled = state.is_signalled || is_signal;
    return;
  }
  if (is_signal || state.is_told || g_told >= kMostChildren) return;
  state.is_told = true;
  ++g_told;
  char key[40], fact[60];
  snprintf(key, sizeof(key), "child.%ld", child);
  snprintf(fact, sizeof(fact), "%ld%s", api().as_long(status.get()), state.is_signalled ? "\tsignalled" : "");
  state.is_signalled = false;
  session::define_fact(key, fact);
}

void record_role(Frame* frame, bool is_bootstrap) noexcept {
  const pid_t pid = getpid();
  if (g_numbered == pid) return;
  const Ref process(variable("multiprocessing.process", "_current_process"));
  const Ref parent(variable("multiprocessing.process", "_parent_process"));
  // At the begin of _bootstrap the parent's Process object is still the current one.
  const bool is_too_early = is_bootstrap && self_in(frame) != process.get();
  if (is_something(process) && is_something(parent) && !is_too_early && session::open_spool()) {
    if (g_named != pid) record_name(pid, process);
    record_number(pid);
  }
}

}  // namespace

void record_worker(Frame* frame) noexcept {
  if (seal::is_sealed() || !frame) return;
  const KeepError keep;
  switch (const Follows what = follows(frame)) {
    case Follows::kEnd:
    case Follows::kSignal:
      record_child(self_in(frame), what == Follows::kSignal);
      break;
    case Follows::kRole:
    case Follows::kBootstrap:
      record_role(frame, what == Follows::kBootstrap);
  }
  api().error_clear();
}

}  // namespace torchprof::python
