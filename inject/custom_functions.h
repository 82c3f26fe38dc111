// A step before `torch.autograd.Function.apply`, so that an operator that is written in Python has all its inputs:
// tracer/python/arguments.h.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// An extension module has been executed. With the GIL held. Does nothing if it is not torch's, and for a torch whose
// own profiler only shows tensors (1.13).
void look_for_custom_functions(python::Object* module) noexcept;

}  // namespace torchprof::inject
