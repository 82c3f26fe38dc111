// The ways from CUDA into the recorder: when CUDA is initialised, and who else uses CUPTI.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// Once the session is armed. `asks_driver`: the driver is to call us when CUDA is initialised, for which the
// environment is changed: not while threads of the program may read it.
void prepare_cuda(bool asks_driver) noexcept;
// An extension module has been executed. If it is torch._C, adds a step after its _cuda_init(); at the first module of
// all, one before os._exit(). With the GIL held.
void watch_cuda(python::Object* module) noexcept;
// Whether the program has initialised CUDA, before it was watched.
bool is_cuda_running() noexcept;
// From now on the GPU's source is told when the interpreter ends. With the GIL held.
void watch_interpreters_end() noexcept;
// Libraries have been loaded: puts our functions between CUPTI and the libraries that are linked with it. Cheap where
// nothing was loaded.
void share_cupti() noexcept;

}  // namespace torchprof::inject
