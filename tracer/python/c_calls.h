// Calls of C functions: what was called, and from where.
//
// A call site is a callee, a calling code object and an offset in it. It is defined once; an event only carries its
// number. Threads: all functions need the GIL, which guards the table of sites.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/session.h"

namespace torchprof::python {

// The C function or method that is called.
struct Callee {
  const char* name = nullptr;  // nullptr: this is no C function
  const char* type = nullptr;  // of the object whose method it is; nullptr: a function
};
// A bound method around a C function is the same callee as that function: 3.12 to 3.12.4 name the method at one end of
// a call and the function at the other, and tell a PyEval_SetProfile function only of the end (cpython#122029). Nothing
// for Python functions and for callables that run no C function.
Callee callee_of(Object* callable) noexcept;

struct CallPlace {
  Object* code;
  uint32_t offset;  // different for each place in the code object
  Frame* frame;     // gives the line; nullptr: `offset` is in bytes and gives it
};
void begin_c_call(ThreadBuffer& buffer, const Callee& callee, const CallPlace& place) noexcept;
void end_c_call(ThreadBuffer& buffer, Ticks time) noexcept;

}  // namespace torchprof::python
