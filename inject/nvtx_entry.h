// The way in for NVTX: InitializeInjectionNvtx2, which each copy of NVTX in the process calls at its first use, because
// NVTX_INJECTION64_PATH names our library (launcher/run/environment). A program or a user that names another one keeps
// it.
#pragma once

#include "tracer/config/config.h"

namespace torchprof::inject {

// Why the program's ranges are not recorded, if they are not. Once, after session::arm().
void note_injection(const Config& config) noexcept;

}  // namespace torchprof::inject
