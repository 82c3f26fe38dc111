#include "tracer/python/events.h"

#include "tracer/python/calls.h"
#include "tracer/python/groups.h"
#include "tracer/python/modules.h"
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
  if (function.kind() == FunctionKind::kThread) name_thread(frame);
  if (function.kind() == FunctionKind::kWorker) record_worker(frame);
  return {};
}

// At the level `modules`, functions that are only followed have no span.
bool is_recorded(Function function) noexcept {
  return g_level != PythonLevel::kModules || (!function.is_plain() && !function.is_followed());
}

}  // namespace

void state_stack(ThreadBuffer& buffer, Frame* frame) noexcept {
  const bool again = on_thread(buffer).epoch != 0;
  on_thread(buffer).epoch = g_epoch;
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
    const ObjectId object = function.is_plain() ? ObjectId{} : subject_of(frame, function);
    if (is_recorded(function)) open[count++] = {function.id(), object};
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

void begin_object_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  const ObjectId object = subject_of(frame ? frame : api().current_frame(), function);
  if (is_recorded(function)) begin_call_long(buffer, function, object, now());
}

void end_followed_call(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  if (function.kind() == FunctionKind::kProcessGroup)
    record_groups();
  else
    subject_of(frame ? frame : api().current_frame(), function);
  if (is_recorded(function)) end_call_long(buffer, function, time);
}

}  // namespace torchprof::python
