// The Python line that the calling thread is executing, found without the GIL (frames.h): torch releases it before it
// allocates.
//
// Where in the program a thread is, for each operator and each call of Python, is told by PythonLine records, and by
// the lines of functions with which the reader decodes them (spool/record.h). Only functions of the program have any
// (code.h): of what runs in a library, the reader has the call that led there. So nothing is decoded here but once for
// each function, when it is defined.
#pragma once

#include <cstdint>

#include "tracer/python/events.h"
#include "tracer/python/frames.h"
#include "tracer/spool/ids.h"
#include "tracer/thread_buffer.h"

namespace torchprof::python {

struct Site {
  FunctionId function;
  uint32_t line = 0;  // from 1; 0: not known, and then the function is none
};

// Any thread, with or without the GIL. No lock, and no allocation but one mapping at the thread's first call. About 8
// ns; for a place that this thread has not seen lately also the time to read the code's table of lines.
Site current_site(ThreadBuffer& buffer) noexcept;

// The line of the next Memory or OutOfMemory record, which must have the same time. Nothing where it is not known.
[[gnu::cold]] void put_allocation_site(ThreadBuffer& buffer, Ticks now) noexcept;

extern bool g_takes_lines;  // false where calls of functions are not recorded, or frames cannot be read

// Once, after check_frames() and with the level known, called from Python code with the GIL held.
void start_lines() noexcept;

// Defines the lines of a function. False: they are not known. With the GIL held.
bool define_lines(FunctionId function, Object* code) noexcept;

// Says that the thread is at this place, unless that is what it said last. `time`: of the record that comes next; 0: it
// is not read yet.
void put_position(ThreadBuffer& buffer, const Position& position, Ticks time = {}) noexcept;

namespace detail {
void put_line(ThreadBuffer& buffer) noexcept;
void put_caller_line(ThreadBuffer& buffer, Object* code, const Frame* frame) noexcept;
}  // namespace detail

// Whether the thread's functions are recorded one by one, so that the reader knows which one is the innermost.
inline bool wants_line(ThreadBuffer& buffer) noexcept { return g_takes_lines && on_thread(buffer).epoch == g_epoch; }

// An operator is about to be recorded on the calling thread, with or without the GIL. About 5 ns.
inline void put_line(ThreadBuffer& buffer) noexcept {
  if (wants_line(buffer)) detail::put_line(buffer);
}

// A call of the function `code` is about to be recorded; `frame` as for begin_call(). With the GIL held; likewise.
inline void put_caller_line(ThreadBuffer& buffer, Object* code, const Frame* frame) noexcept {
  if (wants_line(buffer)) detail::put_caller_line(buffer, code, frame);
}

}  // namespace torchprof::python
