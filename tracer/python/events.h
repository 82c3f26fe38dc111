// Records of Python calls, and of the stack that a thread has when we first see it. Used by the two sources of calls:
// monitoring.h and profile.h.
//
// Threads: writes the calling thread's own records, with the GIL held.
#pragma once

#include "tracer/config/config.h"
#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/session.h"

namespace torchprof::python {

extern PythonLevel g_level;
extern uint32_t g_epoch;               // each thread states its stack once in an epoch
constexpr uint32_t kRestate = ~0u;     // a thread's epoch when its stack has to be stated anew
constexpr uint32_t kBrief = 1u << 31;  // in a thread's epoch: it imports a module in brief (imports.h)

struct OnThread {
  static constexpr Part kPart = Part::kPython;
  uint32_t epoch;  // in which the thread has stated its stack; 0: it has not yet
  StringId name;   // as threading has it, once it is defined (python/threads)
};
inline OnThread& on_thread(ThreadBuffer& buffer) noexcept { return buffer.sources.part<OnThread>(); }

// States the thread's stack from `frame` (borrowed) outwards. If it was stated before, that is closed first.
void state_stack(ThreadBuffer& buffer, Frame* frame) noexcept;
// The current frame, or `frame` if it is known, has just begun: states its callers.
void state_callers(ThreadBuffer& buffer, Frame* frame) noexcept;

void begin_call_long(ThreadBuffer& buffer, Function function, ObjectId object, Ticks time) noexcept;
void end_call_long(ThreadBuffer& buffer, Function function, Ticks time) noexcept;
// A function ends that we follow because of what it does: it names a thread, makes a process group ... `frame`: as for
// begin_call().
void end_followed_call(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept;
// What such a function tells, without a span; `frame` as above.
void follow(Function function, Frame* frame, bool ends) noexcept;
// A call of a module or an optimizer, or of a function that is followed; `frame` as above.
void begin_object_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept;

// R: BlindBegin or BlindEnd (spool/record.h).
template <class R>
void put_blind(TrackId track, StringId by) noexcept {
  ThreadBuffer* buffer = session::current_buffer();
  auto* record = buffer ? buffer->append<R>(session::now()) : nullptr;
  if (!record) return;
  record->track = track;
  record->by = by;
  buffer->commit();
}

inline void begin_call(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  if (!function.is_plain()) [[unlikely]]
    return begin_object_call(buffer, function, frame);
  const Ticks time = session::now();
  if (!buffer.put_short(kShortKindOf<PythonBegin>, function.id().value, time)) [[unlikely]]
    begin_call_long(buffer, function, {}, time);
}

inline void end_call(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  if (function.is_followed()) [[unlikely]]
    return end_followed_call(buffer, function, frame, time);
  if (!buffer.put_short(kShortKindOf<PythonEnd>, function.id().value, time)) [[unlikely]]
    end_call_long(buffer, function, time);
}

}  // namespace torchprof::python
