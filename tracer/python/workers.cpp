#include "tracer/python/workers.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

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

long number_of(Object* object, const char* name) noexcept {
  const Ref value(own_attribute(object, name));
  return value ? api().as_long(value.get()) : -1;
}

// Whether this is the frame of _bootstrap, at whose begin the parent's Process object is still the current one.
bool is_too_early(Frame* frame, const Ref& process) noexcept {
  const Ref code(api().frame_code(frame));
  const Ref name(api().get_attr(code.get(), "co_name"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  return text && strcmp(text, "_bootstrap") == 0 && self_in(frame) != process.get();
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
  const long number = number_of(info.get(), "id"), count = number_of(info.get(), "num_workers");
  if (number < 0 || count < 0) return;
  char fact[80];
  snprintf(fact, sizeof(fact), "%d\t%ld\t%ld", static_cast<int>(pid), number, count);
  session::define_fact("dataloader.worker", fact);
  g_numbered = pid;
}

}  // namespace

void record_worker(Frame* frame) noexcept {
  if (seal::is_sealed()) return;
  const pid_t pid = getpid();
  if (g_numbered == pid || !frame) return;
  const KeepError keep;
  const Ref process(variable("multiprocessing.process", "_current_process"));
  const Ref parent(variable("multiprocessing.process", "_parent_process"));
  if (is_something(process) && is_something(parent) && !is_too_early(frame, process) && session::open_spool()) {
    if (g_named != pid) record_name(pid, process);
    record_number(pid);
  }
  api().error_clear();
}

}  // namespace torchprof::python
