// The ways from CUDA into the recorder: when CUDA is initialised, and who else uses CUPTI.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// In the constructor, once the session is armed.
void prepare_cuda() noexcept;
// An extension module has been executed. If it is torch._C, adds a step after its _cuda_init(); at the first module of
// all, one before os._exit(). With the GIL held.
void watch_cuda(python::Object* module) noexcept;
// From now on the GPU's source is told when the interpreter ends. With the GIL held.
void watch_interpreters_end() noexcept;
// Libraries have been loaded: puts our functions between CUPTI and the libraries that are linked with it. Cheap where
// nothing was loaded.
void share_cupti() noexcept;

}  // namespace torchprof::inject
