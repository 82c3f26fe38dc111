// Greenlets (the package greenlet, which gevent and eventlet use): a thread has several stacks and changes between
// them. A step around each change makes sure that the thread's Python calls are recorded as those of the stack that
// runs.
//
// Sources: greenlet.h of 2.0.2, "It does not change": the C API of greenlet 0.4 and later is an array of pointers in a
// capsule. The 6th, counted from 1, is PyGreenlet_Throw (self, type, value, traceback), the 7th PyGreenlet_Switch
// (self, args, keywords). Methods "switch" (METH_VARARGS | METH_KEYWORDS) and "throw" (METH_VARARGS) of
// greenlet.greenlet. Not seen: the garbage collector ends a greenlet; what its `finally` blocks call is then shown in
// the stack that let go of it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// An extension module has been executed. With the GIL held; does nothing if it is not greenlet's.
void look_for_greenlets(python::Object* module) noexcept;

}  // namespace torchprof::inject
