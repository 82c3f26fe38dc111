// A step in front of `torch.autograd.Function.apply`, so that an operator which is written in Python has all of its
// inputs: tracer/python/arguments.h.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// An extension module has its contents now. With the GIL held; does nothing if it is not torch's, or a torch whose own
// profiler shows tensors alone (1.13).
void look_for_custom_functions(python::Object* module) noexcept;

}  // namespace torchprof::inject
