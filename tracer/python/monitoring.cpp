#include "tracer/python/monitoring.h"

#include <atomic>
#include <cstdio>
#include <iterator>

#include "tracer/python/c_calls.h"
#include "tracer/python/events.h"
#include "tracer/python/imports.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/site.h"
#include "tracer/window.h"

namespace torchprof::python {
namespace {

using session::current_buffer;
using session::now;

Object* g_disable = nullptr;  // sys.monitoring.DISABLE

// A callback's result. None is immortal from 3.12 on: no reference is counted.
Object* go_on() noexcept { return api().none; }
bool g_has_disabled = false;  // in this turn of the session, or an earlier one
Object* disable_here() noexcept {
  g_has_disabled = true;
  api().incref(g_disable);
  return g_disable;
}

// An extension may fire events itself, for any object (PyMonitoring_FirePyStartEvent and others, 3.13).
bool is_code(Object* code) noexcept { return type_of(code) == api().code_type; }

// (code, offset): a frame begins or is resumed. It is the current frame already.
Object* on_start(Object*, Object* const* args, size_t, Object*) noexcept {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer || !is_code(args[0])) [[unlikely]]
    return go_on();
  if (on_thread(*buffer).epoch != g_epoch) [[unlikely]] {
    if (!is_in_brief(*buffer)) state_callers(*buffer, nullptr);
    if (is_in_brief(*buffer) && !begin_in_brief(*buffer, args[0], nullptr)) return go_on();
  }
  put_caller_line(*buffer, args[0], nullptr);
  begin_call(*buffer, function_of(args[0]), nullptr);
  return go_on();
}

// (code, offset, value or exception)
Object* on_end(Object*, Object* const* args, size_t, Object*) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer || !is_code(args[0])) [[unlikely]]
    return go_on();
  if (on_thread(*buffer).epoch != g_epoch) [[unlikely]] {
    if (!is_in_brief(*buffer)) state_stack(*buffer, api().current_frame());
    if (is_in_brief(*buffer)) {
      end_in_brief(*buffer, args[0], nullptr, time);
      return go_on();
    }
  }
  end_call(*buffer, function_of(args[0]), nullptr, time);
  return go_on();
}

bool is_plain(Object* code) noexcept { return !is_code(code) || function_of(code).is_plain(); }

// At the level `modules`, code that is not a module's or an optimizer's is switched off at its first event and costs
// nothing from then on.
Object* on_module_start(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return is_plain(args[0]) ? disable_here() : on_start(self, args, count, names);
}

Object* on_module_end(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return is_plain(args[0]) ? disable_here() : on_end(self, args, count, names);
}

// PY_UNWIND cannot be switched off for one code object; it is rare.
Object* on_module_unwind(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return is_plain(args[0]) ? go_on() : on_end(self, args, count, names);
}

// (code, offset, callable, first argument)
Object* on_call(Object*, Object* const* args, size_t, Object*) noexcept {
  // Most calls are of Python functions, which have an event of their own (PY_START).
  if (type_of(args[2]) == api().python_function_type) return go_on();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer || !is_code(args[0])) return go_on();
  const bool is_stated = on_thread(*buffer).epoch == g_epoch;
  if (!is_stated && is_in_brief(*buffer)) return go_on();
  if (const Callee callee = callee_of(args[2]); callee.name) {
    if (!is_stated) [[unlikely]] {
      state_stack(*buffer, api().current_frame());
      if (is_in_brief(*buffer)) return go_on();
    }
    begin_c_call(*buffer, callee, {args[0], small_int(args[1]), nullptr});
  }
  return go_on();
}

Object* on_c_return(Object*, Object* const* args, size_t, Object*) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer || !is_code(args[0])) return go_on();
  if (on_thread(*buffer).epoch == g_epoch && callee_of(args[2]).name) end_c_call(*buffer, time);
  return go_on();
}

// A callable of our own type: it is called directly through its vectorcall pointer, which costs 20 % less per event
// than a built-in function.
struct Hook {
  uintptr_t header[2];  // PyObject of a plain build
  Vectorcall function;
};
struct Member {  // PyMemberDef
  const char* name;
  int type;
  Size offset;
  int flags;
  const char* doc;
};
struct Slot {  // PyType_Slot
  int slot;
  const void* function;
};
struct Spec {  // PyType_Spec
  const char* name;
  int basic_size;
  int item_size;
  unsigned flags;
  const Slot* slots;
};

Object* hook_type() noexcept {
  static constexpr int kSizeMember = 19, kReadOnly = 1;  // T_PYSSIZET, READONLY: structmember.h
  static constexpr int kTpCall = 50, kTpMembers = 72;    // typeslots.h, stable ABI
  // Py_TPFLAGS_HAVE_VECTORCALL, object.h; Py_TPFLAGS_DEFAULT is 0 here.
  static constexpr unsigned kHasVectorcall = 1u << 11;
  static const Member members[] = {{"__vectorcalloffset__", kSizeMember, offsetof(Hook, function), kReadOnly, nullptr},
                                   {}};
  static const Slot slots[] = {
      {kTpMembers, members}, {kTpCall, reinterpret_cast<const void*>(api().vectorcall_call)}, {}};
  static Spec spec = {"torchprof.hook", sizeof(Hook), 0, kHasVectorcall, slots};
  return api().type_from_spec(&spec);
}

// A callback for sys.monitoring. It lives as long as the process.
Object* new_hook(Object* type, Vectorcall function) noexcept {
  Object* hook = api().call(type, nullptr);
  if (hook) reinterpret_cast<Hook*>(hook)->function = function;
  return hook;
}

bool event_mask(Object* events, const char* name, long& mask) noexcept {
  const Ref value(api().get_attr(events, name));
  mask = value ? api().as_long(value.get()) : 0;
  return mask > 0;
}

bool register_hook(Object* monitoring, int tool, Object* events, Object* type, const char* name, Vectorcall function,
                   long& mask) noexcept {
  long bit = 0;
  if (!event_mask(events, name, bit)) return false;
  const Ref hook(new_hook(type, function));
  if (!hook) return false;
  const Ref old(api().call_method(monitoring, "register_callback", "ilO", tool, bit, hook.get()));
  mask |= bit;
  return static_cast<bool>(old);
}

// ---- the tool id ----------------------------------------------------------------------------------------------------

// In an interpreter's dictionary: our tool id + 1; 0: none.
constexpr char kTool[] = "torchprof.tool";
bool g_is_on = false;      // in the first interpreter
long g_mask = 0;           // the events that we want there
StringId g_pushed_out_by;  // none: we have an id there
// The thread that is calling a function of sys.monitoring for us. Interpreters with a GIL of their own may call at the
// same time; then one of the threads is forgotten, and its tool moves without need.
std::atomic<const ThreadState*> g_our_caller{nullptr};

int own_tool() noexcept { return static_cast<int>(own_number(kTool, 0)) - 1; }

void set_own_tool(int tool) noexcept {
  set_own_number(kTool, tool + 1);
  if (is_first_interpreter()) g_is_on = tool >= 0;
}

bool is_our_call() noexcept { return g_our_caller.load(std::memory_order_relaxed) == api().current_thread(); }

class OurCall {
 public:
  OurCall() noexcept { g_our_caller.store(api().current_thread(), std::memory_order_relaxed); }
  ~OurCall() { g_our_caller.store(nullptr, std::memory_order_relaxed); }
  OurCall(const OurCall&) = delete;
  OurCall& operator=(const OurCall&) = delete;
};

// Takes a free tool id other than `but`; -1: none is free. 0 to 2 are reserved for debuggers, coverage and profilers,
// which may come later, and are taken only if we have to move.
int take_tool(Object* monitoring, int but) noexcept {
  constexpr int kFirstUnreserved = 3;  // of six
  for (const int id : {3, 4, 5, 2, 1, 0}) {
    if (id == but || (but < 0 && id < kFirstUnreserved)) continue;
    const Ref result(api().call_method(monitoring, "use_tool_id", "is", id, "torchprof"));
    if (result) return id;
    api().error_clear();  // ValueError: somebody holds it
  }
  return -1;
}

bool set_events(Object* monitoring, int tool, long mask) noexcept {
  const Ref set(api().call_method(monitoring, "set_events", "il", tool, mask));
  return static_cast<bool>(set);
}

// A window switches the events of the first interpreter. In the others they stay on; between windows nothing is
// recorded.
bool register_all(Object* monitoring, int tool) noexcept {
  const bool is_first = is_first_interpreter();
  const Ref events(api().get_attr(monitoring, "events"));
  const Ref type(hook_type());  // each interpreter has its own; its hooks hold it
  if (!events || !type) return false;
  long mask = 0;
  const auto add = [&](const char* name, Vectorcall function) {
    return register_hook(monitoring, tool, events.get(), type.get(), name, function, mask);
  };
  bool good = false;
  if (g_level == PythonLevel::kModules)  // these are never generators
    good = add("PY_START", on_module_start) && add("PY_RETURN", on_module_end) && add("PY_UNWIND", on_module_unwind);
  else
    good = add("PY_START", on_start) && add("PY_RESUME", on_start) && add("PY_THROW", on_start) &&
           add("PY_RETURN", on_end) && add("PY_YIELD", on_end) && add("PY_UNWIND", on_end);
  if (g_level == PythonLevel::kCalls && is_first) {  // the tables of C calls are guarded by the first one's GIL
    good = good && add("CALL", on_call);
    // These two come with CALL and cannot be asked for by themselves.
    long unused = 0;
    for (const char* name : {"C_RETURN", "C_RAISE"})
      good = good && register_hook(monitoring, tool, events.get(), type.get(), name, on_c_return, unused);
  }
  if (is_first) g_mask = mask;
  return good && set_events(monitoring, tool, !is_first || window::is_open() ? mask : 0);
}

// All events that we may have asked for.
constexpr const char* kEventNames[] = {"PY_START",  "PY_RESUME", "PY_THROW", "PY_RETURN", "PY_YIELD",
                                       "PY_UNWIND", "CALL",      "C_RETURN", "C_RAISE"};

// Leaves the id without events and callbacks, as its next owner expects it.
void leave_tool(Object* monitoring, int tool) noexcept {
  set_events(monitoring, tool, 0);
  const Ref events(api().get_attr(monitoring, "events"));
  for (const char* name : kEventNames) {
    long bit = 0;
    if (!events || !event_mask(events.get(), name, bit)) continue;
    const Ref old(api().call_method(monitoring, "register_callback", "ilO", tool, bit, api().none));
  }
  const Ref freed(api().call_method(monitoring, "free_tool_id", "i", tool));
  api().error_clear();
}

// Only for the first interpreter: `subinterpreters` is another source (calls.cpp).
void note_python(SourceState state, const char* text) noexcept {
  if (is_first_interpreter()) session::note_source("python", state, text);
}

void start_on(Object* monitoring, int tool) noexcept {
  char how[session::kNoteSize];
  if (!register_all(monitoring, tool)) {
    api().error_clear();
    leave_tool(monitoring, tool);
    note_python(SourceState::kFailed, "sys.monitoring refused our callbacks");
    return;
  }
  set_own_tool(tool);
  snprintf(how, sizeof(how), "sys.monitoring, tool id %d", tool);
  note_python(SourceState::kOn, how);
}

void move_away(Object* monitoring) noexcept {
  const int old = own_tool();
  const int fresh = take_tool(monitoring, old);
  set_own_tool(-1);
  if (fresh >= 0) start_on(monitoring, fresh);
  leave_tool(monitoring, old);
  if (own_tool() >= 0 || !is_first_interpreter()) return;
  g_pushed_out_by = session::intern("the program's sys.monitoring tools");
  put_blind<BlindBegin>({}, g_pushed_out_by);
  session::note_source("python", SourceState::kFailed, "the program took every sys.monitoring id");
}

// ---- opcode events --------------------------------------------------------------------------------------------------

constexpr int kFirstRestated = 13;  // before 3.13, opcode events are switched on for all code at once, with the others

// For `frame` (a reference, which is released here) and its callers.
void restate(Frame* frame) noexcept {
  const KeepError keep;
  const Ref off(api().call(api().bool_type, nullptr));
  for (Ref at(frame); at; at.reset(reinterpret_cast<Object*>(api().frame_back(reinterpret_cast<Frame*>(at.get()))))) {
    const Ref wants(api().get_attr(at.get(), "f_trace_opcodes"));
    if (!wants || !off || wants.get() == off.get()) continue;
    const Ref function(api().get_attr(at.get(), "f_trace"));
    if (!function || function.get() == api().none) continue;
    api().set_attr(at.get(), "f_trace_opcodes", off.get());
    api().set_attr(at.get(), "f_trace_opcodes", wants.get());
  }
  api().error_clear();
}

}  // namespace

void start_monitoring() noexcept {
  Object* monitoring = api().sys_object("monitoring");
  const Ref disable(monitoring ? api().get_attr(monitoring, "DISABLE") : static_cast<Object*>(nullptr));
  if (!disable) {
    session::note_source("python", SourceState::kFailed, "sys.monitoring is not what this version knows");
    return;
  }
  const OurCall ours;
  const int tool = take_tool(monitoring, -1);
  if (tool < 0) {
    session::note_source("python", SourceState::kFailed, "other tools hold the sys.monitoring ids 3, 4 and 5");
    return;
  }
  // What a tool has switched off stays off for whoever has its id next. Other tools are asked once more, too.
  if (g_has_disabled) const Ref restarted(api().call_method(monitoring, "restart_events", nullptr));
  g_has_disabled = false;
  api().error_clear();
  if (!g_disable) api().incref(disable.get());
  g_disable = disable.get();
  start_on(monitoring, tool);
}

void stop_monitoring() noexcept {
  const int tool = is_first_interpreter() ? own_tool() : -1;
  g_pushed_out_by = {};
  if (tool < 0) return;
  const OurCall ours;
  set_own_tool(-1);
  leave_tool(api().sys_object("monitoring"), tool);
}

bool start_monitoring_here() noexcept {
  Object* monitoring = api().sys_object("monitoring");
  const OurCall ours;
  const int tool = monitoring ? take_tool(monitoring, -1) : -1;
  if (tool >= 0) start_on(monitoring, tool);
  return own_tool() >= 0;
}

void switch_monitoring(bool on) noexcept {
  const int tool = is_first_interpreter() ? own_tool() : -1;
  if (tool < 0) return;
  const OurCall ours;
  if (!set_events(api().sys_object("monitoring"), tool, on ? g_mask : 0)) api().error_clear();
  if (on) restate_opcodes();
}

bool is_monitoring() noexcept { return g_is_on; }

bool is_our_tool(Object* id) noexcept {
  if (is_our_call() || !is_a(id, api().long_type)) return false;  // an IntEnum is one as well
  const KeepError keep;
  const int tool = own_tool();
  const bool is_ours = tool >= 0 && api().as_long(id) == tool;
  api().error_clear();
  return is_ours;
}

void leave_out_our_tool(Object* events) noexcept {
  const int tool = own_tool();
  if (is_our_call() || tool < 0 || type_of(events) != api().dict_type) return;
  const KeepError keep;
  const long ours = 1L << tool;
  for (const char* name : kEventNames) {
    Object* tools = api().dict_get(events, name);  // borrowed
    const long others = tools ? api().as_long(tools) & ~ours : 0;
    const Ref left(others ? api().from_long(others) : static_cast<Object*>(nullptr));
    if (left)
      api().dict_set(events, name, left.get());
    else if (tools)
      api().dict_delete(events, name);
  }
  api().error_clear();
}

void tool_is_wanted(Object* id) noexcept {
  if (!is_our_tool(id)) return;
  const KeepError keep;
  const OurCall ours;
  move_away(api().sys_object("monitoring"));
  api().error_clear();
}

void tool_was_freed() noexcept {
  if (is_our_call() || !g_pushed_out_by || !is_first_interpreter()) return;
  const KeepError keep;
  const OurCall ours;
  Object* monitoring = api().sys_object("monitoring");
  const int tool = take_tool(monitoring, 6);
  if (tool >= 0) {
    ++g_epoch;
    start_on(monitoring, tool);
    put_blind<BlindEnd>({}, g_pushed_out_by);
    g_pushed_out_by = {};
  }
  api().error_clear();
}

void restate_opcodes_of_this_thread() noexcept {
  Frame* frame = api().minor >= kFirstRestated ? api().current_frame() : nullptr;  // borrowed
  if (!frame) return;
  api().incref(reinterpret_cast<Object*>(frame));
  restate(frame);
}

void restate_opcodes() noexcept {
  if (api().minor < kFirstRestated) return;
  for (ThreadState* t = api().first_thread(api().current_interpreter()); t; t = api().next_thread(t))
    if (Frame* frame = api().thread_frame(t)) restate(frame);
}

}  // namespace torchprof::python
