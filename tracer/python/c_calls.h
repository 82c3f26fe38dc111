// Calls of C functions: what was called, and from where.
//
// A call site is a callee, a calling code object and an offset in it. It is defined once; an event carries its number
// alone. Threads: all with the GIL held, which guards the table of sites.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/session.h"

namespace torchprof::python {

// What a C call is called on: the builtin itself, a method descriptor, or nothing of ours.
struct Callee {
  const char* name = nullptr;
  const char* type = nullptr;  // of the object whose method it is; nullptr: a function
};
// Nothing for Python functions and for callables that run none: 3.12 to 3.12.4 tell of the end of a call of a bound C
// method without having told of its begin to PyEval_SetProfile (cpython#122029); sys.monitoring names the method in one
// and the function in the other, which are one here.
Callee callee_of(Object* callable) noexcept;

struct Place {  // of the call
  Object* code;
  uint32_t offset;  // tells places in one code object apart
  Frame* frame;     // nullptr: `offset` is the byte's and gives the line
};
void begin_c_call(ThreadBuffer& buffer, const Callee& callee, const Place& place) noexcept;
void end_c_call(ThreadBuffer& buffer, Ticks time) noexcept;

}  // namespace torchprof::python
