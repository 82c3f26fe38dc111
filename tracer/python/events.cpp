#include "tracer/python/events.h"

#include "tracer/python/calls.h"
#include "tracer/python/groups.h"
#include "tracer/python/imports.h"
#include "tracer/python/modules.h"
#include "tracer/python/site.h"
#include "tracer/python/threads.h"
#include "tracer/python/workers.h"

namespace torchprof::python {

using session::now;

PythonLevel g_level = PythonLevel::kOff;
uint32_t g_epoch = 0;

namespace {

// The module or optimizer that is called. Of a function that is followed, records what it tells.
ObjectId subject_of(Frame* frame, Function function) noexcept {
  if (!function.is_followed()) return object_of(frame, function.kind());
  follow(function, frame, false);
  return {};
}

// At the level `modules`, functions that are only followed have no span.
bool is_recorded(Function function) noexcept {
  if (function.kind() == FunctionKind::kOurs) return false;
  return g_level != PythonLevel::kModules || (!function.is_plain() && !function.is_followed());
}

}  // namespace

void state_stack(ThreadBuffer& buffer, Frame* frame) noexcept {
  const OwnWork own_work;
  const bool again = on_thread(buffer).epoch != 0;
  on_thread(buffer).epoch = g_epoch;
  if (again) {
    if (!buffer.append<PythonSync>(now())) return;
    buffer.commit();
  }
  struct Open {
    FunctionId function;
    ObjectId object;
    Position caller;  // without code: not known
  };
  Open open[kMaxFrames + kMostImports];
  size_t count = 0, plain = 0;      // plain: those of them that are no imports
  size_t kept = 0, kept_plain = 0;  // an import in brief further out does not take these away
  FoundImports imports(buffer);
  Ref inner;               // the code of the frame inside of `frame`,
  Open* called = nullptr;  // and that frame; nullptr: it is not recorded
  const bool with_lines = g_takes_lines;
  if (frame) api().incref(reinterpret_cast<Object*>(frame));
  for (int beyond = 0; frame;) {
    const Ref holder(frame);
    const bool is_full = plain == kMaxFrames;
    if (is_full && (!g_imports_in_brief || ++beyond > kMaxFramesBeyond)) break;
    Ref code(api().frame_code(frame));
    const Function function = is_full ? seen_function(code.get()) : function_of(code.get());
    if (called && with_lines && function.is_of_program()) called->caller = position_in(frame, code.get());
    called = nullptr;
    if (const Import* import = imports.add(frame, function, inner.get())) {
      if (!import->is_full) {
        count = kept;
        plain = kept_plain;
      }
      called = &open[count];
      open[count++] = {import->function, {}, {}};
      kept = count;
      kept_plain = plain;
    } else if (!is_full) {
      const ObjectId object = function.is_plain() ? ObjectId{} : subject_of(frame, function);
      if (is_recorded(function)) {
        called = &open[count];
        open[count++] = {function.id(), object, {}};
        ++plain;
      }
    }
    inner.reset(code.release());
    frame = api().frame_back(frame);
  }
  imports.set();
  const Ticks time = now();
  while (count-- > 0) {
    if (open[count].caller.code) put_position(buffer, open[count].caller, time);
    auto* record = buffer.append<PythonFrame>(time);
    if (!record) return;
    record->function = open[count].function;
    record->object = open[count].object;
    buffer.commit();
  }
}

void state_callers(ThreadBuffer& buffer, Frame* frame) noexcept {
  if (!frame) frame = api().current_frame();
  const Ref back(frame ? api().frame_back(frame) : nullptr);
  state_stack(buffer, reinterpret_cast<Frame*>(back.get()));
}

void begin_call_long(ThreadBuffer& buffer, Function function, ObjectId object, Ticks time) noexcept {
  if (auto* record = buffer.append<PythonBegin>(time)) {
    record->function = function.id();
    record->object = object;
    buffer.commit();
  }
}

void end_call_long(ThreadBuffer& buffer, Function function, Ticks time) noexcept {
  if (auto* record = buffer.append<PythonEnd>(time)) {
    record->function = function.id();
    record->pad = 0;
    buffer.commit();
  }
}

void follow(Function function, Frame* frame, bool ends) noexcept {
  if (function.kind() == FunctionKind::kProcessGroup) {
    if (ends) record_groups();
    return;
  }
  if (!frame) frame = api().current_frame();
  if (function.kind() == FunctionKind::kThread) name_thread(frame);
  if (function.kind() == FunctionKind::kWorker) record_worker(frame);
}

void begin_object_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  if (is_brief_kind(function.kind()) && begin_import(buffer, function, frame)) return;
  const ObjectId object = subject_of(frame ? frame : api().current_frame(), function);
  if (is_recorded(function)) begin_call_long(buffer, function, object, now());
}

void end_followed_call(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  if (is_brief_kind(function.kind()) && end_import(buffer, function, frame, time)) return;
  follow(function, frame, true);
  if (is_recorded(function)) end_call_long(buffer, function, time);
}

}  // namespace torchprof::python
