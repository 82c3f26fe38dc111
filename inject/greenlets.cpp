#include "inject/greenlets.h"

#include <cstring>

#include "inject/method_table.h"
#include "tracer/python/calls.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::Object;

Keywords g_switch = nullptr;
VarArgs g_throw = nullptr;
Keywords g_api_switch = nullptr;
using ApiThrow = Object* (*)(Object* self, Object* type, Object* value, Object* traceback);
ApiThrow g_api_throw = nullptr;

// Around a change to another stack. It ends when somebody changes back to this stack.
class Away {
 public:
  Away() noexcept { python::leave_stack(); }
  ~Away() { python::enter_stack(); }
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;
};

Object* switch_to(Object* self, Object* args, Object* keywords) {
  const Away away;
  return g_switch(self, args, keywords);
}

Object* throw_into(Object* self, Object* args) {
  const Away away;
  return g_throw(self, args);
}

Object* api_switch_to(Object* self, Object* args, Object* keywords) {
  const Away away;
  return g_api_switch(self, args, keywords);
}

Object* api_throw_into(Object* self, Object* type, Object* value, Object* traceback) {
  const Away away;
  return g_api_throw(self, type, value, traceback);
}

constexpr char kCapsule[] = "greenlet._C_API";
constexpr int kApiThrow = 5, kApiSwitch = 6;

template <class F>
void replace(void*& entry, F ours, F& theirs) noexcept {
  if (!entry || entry == reinterpret_cast<void*>(ours)) return;
  theirs = reinterpret_cast<F>(entry);
  entry = reinterpret_cast<void*>(ours);
  note_place(&entry, entry, reinterpret_cast<void*>(theirs));
}

}  // namespace

void look_for_greenlets(Object* module) noexcept {
  using GetPointer = void* (*)(Object*, const char*);
  static OnceATurn once;
  if (once.is_done() || !is_named(module, "greenlet._greenlet")) return;
  const python::Ref capsule(api().get_attr(module, "_C_API"));
  const auto get_pointer = reinterpret_cast<GetPointer>(python::symbol("PyCapsule_GetPointer"));
  auto** table = static_cast<void**>(capsule && get_pointer ? get_pointer(capsule.get(), kCapsule) : nullptr);
  const python::Ref type(table ? api().get_attr(module, "greenlet") : static_cast<Object*>(nullptr));
  api().error_clear();
  if (!type) return;
  once.done();
  const bool good =
      put_behind(type.get(), "switch", python::kMethVarArgs | python::kMethKeywords, &switch_to, g_switch) &&
      put_behind(type.get(), "throw", python::kMethVarArgs, &throw_into, g_throw);
  if (good) {
    replace(table[kApiSwitch], &api_switch_to, g_api_switch);
    replace(table[kApiThrow], &api_throw_into, g_api_throw);
  }
  session::note_source(
      "greenlets", good ? SourceState::kOn : SourceState::kFailed,
      good ? "calls are recorded as those of the stack that runs"
           : "greenlet.switch is not what this version knows; calls of greenlets are shown inside one another");
}

}  // namespace torchprof::inject
