// The ways from CUDA into the recorder: when CUDA is initialised, and who else uses CUPTI.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// In the constructor, once the session is armed.
void prepare_cuda() noexcept;
// An extension module has been executed; if it is torch._C, we stand behind its _cuda_init. With the first one, in
// front of os._exit(). With the GIL held.
void watch_cuda(python::Object* module) noexcept;
// The interpreter's end is told to the GPU's side. With the GIL held.
void watch_interpreters_end() noexcept;
// Libraries have been loaded: stands between CUPTI and those who are linked with it. Cheap where nothing was
// loaded.
void share_cupti() noexcept;

}  // namespace torchprof::inject
