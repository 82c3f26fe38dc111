#include "tracer/python_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tracer/python_abi.h"
#include "tracer/python_code.h"
#include "tracer/python_modules.h"
#include "tracer/python_site.h"
#include "tracer/session.h"

namespace torchprof::python {

bool detail::g_uses_profile = false;

namespace {

using detail::g_uses_profile;
using session::current_buffer;
using session::now;

PythonLevel g_level = PythonLevel::kOff;
uint32_t g_epoch = 0;               // grows with each capture: threads state their stacks once in each
constexpr uint32_t kRestate = ~0u;  // a thread's epoch when its stack has to be stated anew

// ---- records
// ------------------------------------------------------------------------------------------------------------

// What the thread's stack holds from `frame` (borrowed) outwards. Its Python spans, if any, are restated.
[[gnu::noinline, gnu::cold]] void state_stack(ThreadBuffer& buffer, Frame* frame) noexcept {
  const bool again = buffer.python_epoch != 0;
  buffer.python_epoch = g_epoch;
  if (again) {
    if (!buffer.append<PythonSync>(now())) return;
    buffer.commit();
  }
  struct Open {
    FunctionId function;
    ObjectId object;
  };
  Open open[kMaxFrames];
  size_t count = 0;
  if (frame) api().incref(reinterpret_cast<Object*>(frame));
  while (frame) {
    const Ref holder(frame);
    if (count == kMaxFrames) break;
    const Ref code(api().frame_code(frame));
    const Function function = function_of(code.get());
    if (g_level != PythonLevel::kModules || !function.is_plain())
      open[count++] = {function.id(), object_of(frame, function.kind())};
    frame = api().frame_back(frame);
  }
  const Ticks time = now();
  while (count-- > 0) {
    auto* record = buffer.append<PythonFrame>(time);
    if (!record) return;
    record->function = open[count].function;
    record->object = open[count].object;
    buffer.commit();
  }
}

// The current frame, or `frame` if it is known, has just begun.
[[gnu::noinline, gnu::cold]] void state_callers(ThreadBuffer& buffer, Frame* frame) noexcept {
  if (!frame) frame = api().current_frame();
  const Ref back(frame ? api().frame_back(frame) : nullptr);
  state_stack(buffer, reinterpret_cast<Frame*>(back.get()));
}

[[gnu::noinline]] void begin_call_long(ThreadBuffer& buffer, Function function, ObjectId object, Ticks time) noexcept {
  if (auto* record = buffer.append<PythonBegin>(time)) {
    record->function = function.id();
    record->object = object;
    buffer.commit();
  }
}

[[gnu::noinline]] void end_call_long(ThreadBuffer& buffer, Function function, Ticks time) noexcept {
  if (auto* record = buffer.append<PythonEnd>(time)) {
    record->function = function.id();
    record->pad = 0;
    buffer.commit();
  }
}

// A module's or an optimizer's call; `frame` as above.
[[gnu::noinline]] void begin_object_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  const ObjectId object = object_of(frame ? frame : api().current_frame(), function.kind());
  begin_call_long(buffer, function, object, now());
}

inline void begin_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  if (!function.is_plain()) [[unlikely]]
    return begin_object_call(buffer, function, frame);
  const Ticks time = now();
  if (!buffer.put_short(kShortKindOf<PythonBegin>, function.id().value, time)) [[unlikely]]
    begin_call_long(buffer, function, {}, time);
}

inline void end_call(ThreadBuffer& buffer, Function function, Ticks time) noexcept {
  if (!buffer.put_short(kShortKindOf<PythonEnd>, function.id().value, time)) [[unlikely]]
    end_call_long(buffer, function, time);
}

// ---- C calls
// ------------------------------------------------------------------------------------------------------------

bool is_c_function(Object* type) noexcept {
  return type == api().function_type || api().is_subtype(type, api().function_type);
}

// What a C call is called on: the builtin itself, a method descriptor, or nothing of ours.
struct Callee {
  const char* name = nullptr;
  const char* type = nullptr;  // of the object whose method it is; nullptr: a function
};

Callee callee_of(Object* callable) noexcept {
  Object* type = type_of(callable);
  if (type == api().method_type) {  // a bound method around a C function: classmethod(repr)
    callable = method_function(callable);
    type = type_of(callable);
  }
  if (type == api().method_descriptor_type)
    return {descriptor_def(callable)->name, type_name(descriptor_owner(callable))};
  if (!is_c_function(type)) return {};
  Object* self = function_owner(callable);
  const char* owner = self ? type_name(type_of(self)) : nullptr;
  const bool is_function = !owner || strcmp(owner, "module") == 0;
  return {function_def(callable)->name, is_function ? nullptr : owner};
}

// As repr() has it, without the address: calls of one method on many objects are one name, and the same in every
// process.
constexpr std::string_view kFunctionHead = "<built-in function ", kMethodHead = "<built-in method ", kOf = " of ";

// Compares piece by piece, so that a name that was seen before is found without being put together.
bool is_name(const char* text, const Callee& callee) noexcept {
  const std::string_view head = callee.type ? kMethodHead : kFunctionHead;
  if (strncmp(text, head.data(), head.size()) != 0) return false;
  text += head.size();
  const size_t length = strlen(callee.name);
  if (strncmp(text, callee.name, length) != 0) return false;
  text += length;
  if (!callee.type) return strcmp(text, ">") == 0;
  if (strncmp(text, kOf.data(), kOf.size()) != 0) return false;
  text += kOf.size();
  const size_t type_length = strlen(callee.type);
  return strncmp(text, callee.type, type_length) == 0 && strcmp(text + type_length, " object>") == 0;
}

[[gnu::noinline]] StringId make_name(const Callee& callee, ThreadBuffer::Name& slot) noexcept {
  char text[512];
  const int length = callee.type ? snprintf(text, sizeof(text), "%s%s%s%s object>", kMethodHead.data(), callee.name,
                                            kOf.data(), callee.type)
                                 : snprintf(text, sizeof(text), "%s%s>", kFunctionHead.data(), callee.name);
  if (length <= 0) return {};
  return session::intern_into(slot, callee.name, {text, std::min(static_cast<size_t>(length), sizeof(text) - 1)});
}

StringId name_of(ThreadBuffer& buffer, const Callee& callee) noexcept {
  const auto place = reinterpret_cast<uintptr_t>(callee.name) ^ reinterpret_cast<uintptr_t>(callee.type);
  ThreadBuffer::Name& known = session::slot_of(buffer, place);
  if (known.place == callee.name && is_name(known.text, callee)) [[likely]]
    return known.id;
  return make_name(callee, known);
}

void begin_c_call(ThreadBuffer& buffer, const Callee& callee) noexcept {
  const StringId name = name_of(buffer, callee);
  const Ticks time = now();
  if (buffer.put_short(kShortKindOf<CCallBegin>, name.value, time)) [[likely]]
    return;
  if (auto* record = buffer.append<CCallBegin>(time)) {
    record->name = name;
    record->pad = 0;
    buffer.commit();
  }
}

void end_c_call(ThreadBuffer& buffer, Ticks time) noexcept {
  if (buffer.append<CCallEnd>(time)) buffer.commit();
}

// ---- sys.monitoring
// -----------------------------------------------------------------------------------------------------

Object* g_disable = nullptr;  // sys.monitoring.DISABLE

// A callback's result. None is immortal from 3.12 on: no reference is counted.
Object* go_on() noexcept { return api().none; }
Object* disable_here() noexcept {
  api().incref(g_disable);
  return g_disable;
}

// (code, offset): a frame begins or goes on. It is the current frame already.
Object* on_start(Object*, Object* const* args, size_t, Object*) noexcept {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) [[unlikely]]
    return go_on();
  if (buffer->python_epoch != g_epoch) [[unlikely]]
    state_callers(*buffer, nullptr);
  begin_call(*buffer, function_of(args[0]), nullptr);
  return go_on();
}

// (code, offset, value or exception)
Object* on_end(Object*, Object* const* args, size_t, Object*) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) [[unlikely]]
    return go_on();
  if (buffer->python_epoch != g_epoch) [[unlikely]]
    state_stack(*buffer, api().current_frame());
  end_call(*buffer, function_of(args[0]), time);
  return go_on();
}

// The level `modules`: a place that is not a module's or an optimizer's is switched off at its first event and costs
// nothing from then on.
Object* on_module_start(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return function_of(args[0]).is_plain() ? disable_here() : on_start(self, args, count, names);
}

Object* on_module_end(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return function_of(args[0]).is_plain() ? disable_here() : on_end(self, args, count, names);
}

// PY_UNWIND cannot be switched off in one place; it is rare.
Object* on_module_unwind(Object* self, Object* const* args, size_t count, Object* names) noexcept {
  return function_of(args[0]).is_plain() ? go_on() : on_end(self, args, count, names);
}

// (code, offset, callable, first argument)
Object* on_call(Object*, Object* const* args, size_t, Object*) noexcept {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return go_on();
  if (const Callee callee = callee_of(args[2]); callee.name) begin_c_call(*buffer, callee);
  return go_on();
}

Object* on_c_return(Object*, Object* const* args, size_t, Object*) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return go_on();
  if (callee_of(args[2]).name) end_c_call(*buffer, time);
  return go_on();
}

// A callable of our own type is called straight through its vectorcall pointer: 20 % less per event than a built-in
// function.
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
  static constexpr unsigned kHasVectorcall =
      1u << 11;  // Py_TPFLAGS_HAVE_VECTORCALL, object.h; Py_TPFLAGS_DEFAULT is 0 here
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

// The tool id, -1 if none is free.
int take_tool(Object* monitoring) noexcept {
  for (const int id : {3, 4, 5}) {
    const Ref result(api().call_method(monitoring, "use_tool_id", "is", id, "torchprof"));
    if (result) return id;
    api().error_clear();  // ValueError: somebody holds it
  }
  return -1;
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

void start_monitoring() noexcept {
  char how[session::kNoteSize];
  Object* monitoring = api().sys_object("monitoring");
  const Ref events(monitoring ? api().get_attr(monitoring, "events") : static_cast<Object*>(nullptr));
  const Ref disable(monitoring ? api().get_attr(monitoring, "DISABLE") : static_cast<Object*>(nullptr));
  Ref type(hook_type());
  if (!events || !disable || !type) {
    session::note_source("python", SourceState::kFailed, "sys.monitoring is not what this version knows");
    return;
  }
  const int tool = take_tool(monitoring);
  if (tool < 0) {
    session::note_source("python", SourceState::kFailed, "other tools hold the sys.monitoring ids 3, 4 and 5");
    return;
  }
  api().incref(disable.get());
  g_disable = disable.get();
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
  if (g_level == PythonLevel::kCalls) {
    good = good && add("CALL", on_call);
    // These two come with CALL and cannot be asked for by themselves.
    long unused = 0;
    for (const char* name : {"C_RETURN", "C_RAISE"})
      good = good && register_hook(monitoring, tool, events.get(), type.get(), name, on_c_return, unused);
  }
  const Ref set(good ? api().call_method(monitoring, "set_events", "il", tool, mask) : static_cast<Object*>(nullptr));
  if (!set) {
    const Ref freed(api().call_method(monitoring, "free_tool_id", "i", tool));
    session::note_source("python", SourceState::kFailed, "sys.monitoring refused our callbacks");
    return;
  }
  snprintf(how, sizeof(how), "sys.monitoring, tool id %d", tool);
  session::note_source("python", SourceState::kOn, how);
}

// ---- PyEval_SetProfile
// --------------------------------------------------------------------------------------------------

Object* code_of(Frame* frame) noexcept {  // borrowed: the frame holds it
  const Layout* at = layout();
  return static_cast<Object*>(read_pointer(at->frame_data ? read_pointer(frame, at->frame_data) : frame, at->code));
}

int on_profile(Object*, Frame* frame, int what, Object*) noexcept {
  if (what == kTraceCall) {
    ThreadBuffer* buffer = current_buffer();
    if (!buffer) [[unlikely]]
      return 0;
    if (buffer->python_epoch != g_epoch) [[unlikely]]
      state_callers(*buffer, frame);
    begin_call(*buffer, function_of(code_of(frame)), frame);
  } else if (what == kTraceReturn) {
    const Ticks time = now();
    ThreadBuffer* buffer = current_buffer();
    if (!buffer) [[unlikely]]
      return 0;
    if (buffer->python_epoch != g_epoch) [[unlikely]]
      state_stack(*buffer, frame);
    end_call(*buffer, function_of(code_of(frame)), time);
  }
  return 0;
}

int on_profile_modules(Object* self, Frame* frame, int what, Object* arg) noexcept {
  if ((what == kTraceCall || what == kTraceReturn) && !function_of(code_of(frame)).is_plain())
    return on_profile(self, frame, what, arg);
  return 0;
}

int on_profile_calls(Object* self, Frame* frame, int what, Object* arg) noexcept {
  if (what == kTraceCall || what == kTraceReturn) return on_profile(self, frame, what, arg);
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  const Callee callee = callee_of(arg);
  if (!buffer || !callee.name) return 0;
  if (what == kTraceCCall)
    begin_c_call(*buffer, callee);
  else
    end_c_call(*buffer, time);
  return 0;
}

TraceFunction profile_function() noexcept {
  return g_level == PythonLevel::kModules ? on_profile_modules
         : g_level == PythonLevel::kCalls ? on_profile_calls
                                          : on_profile;
}

// Takes a thread that nobody profiles. The audit hooks of the program may say no: then the thread is not ours.
void cover(ThreadState* thread) noexcept {
  if (read_pointer(thread, layout()->profile_function)) return;
  if (api().set_profile(thread, profile_function(), nullptr) != 0) api().error_clear();
}

void start_profile() noexcept {
  check_layout();
  if (!layout() || !api().set_profile) {
    session::note_source("python", SourceState::kFailed,
                         "the interpreter's layout is not the one that this version knows");
    return;
  }
  g_uses_profile = true;
  cover_threads();
  session::note_source("python", SourceState::kOn, "PyEval_SetProfile on every thread");
}

}  // namespace

void start_calls(PythonLevel level) noexcept {
  if (level == PythonLevel::kOff) {
    session::note_source("python", SourceState::kOff, "switched off (--python off)");
    return;
  }
  const KeepError keep;
  if (!prepare_objects()) {
    session::note_source("python", SourceState::kFailed, "the interpreter has no room for our mark on code objects");
    return;
  }
  check_frames();
  g_level = level;
  ++g_epoch;
  if (api().minor >= 12)
    start_monitoring();
  else
    start_profile();
  api().error_clear();
}

void cover_threads() noexcept {
  if (!g_uses_profile) return;
  const KeepError keep;
  for (ThreadState* t = api().first_thread(api().main_interpreter()); t; t = api().next_thread(t)) cover(t);
}

void detail::cover_this_thread() noexcept {
  if (!api().gil_check()) return;
  ThreadState* self = api().this_thread();
  if (!self || read_pointer(self, layout()->profile_function)) return;
  // Whatever ran on this thread while it was not ours is unknown: its stack is stated anew at the next event.
  if (t_buffer && t_buffer->python_epoch) t_buffer->python_epoch = kRestate;
  const KeepError keep;
  cover(self);
}

}  // namespace torchprof::python
