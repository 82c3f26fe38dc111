// Greenlets (the package greenlet, on which gevent and eventlet stand): a thread that has several stacks and changes
// between them. A step around each change lets the thread's Python calls be recorded as those of the stack that runs.
//
// Sources: greenlet.h of 2.0.2, "It does not change": the C API of greenlet 0.4 and later is an array of pointers in a
// capsule, PyGreenlet_Throw (self, type, value, traceback) its 6th, PyGreenlet_Switch (self, args, keywords) its 7th,
// the count of both from 1; methods "switch" (METH_VARARGS | METH_KEYWORDS) and "throw" (METH_VARARGS) of
// greenlet.greenlet. Not seen: that the garbage collector ends a greenlet; what its `finally` blocks call then stands
// in the stack that let go of it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// An extension module has its contents now. With the GIL held; does nothing if it is not greenlet's.
void look_for_greenlets(python::Object* module) noexcept;

}  // namespace torchprof::inject
