// The way in for NVTX: InitializeInjectionNvtx2. Each copy of NVTX in the process calls it at its first use, because
// NVTX_INJECTION64_PATH names our library (launcher/run/environment). If the program or its user names another library,
// that one is used.
#pragma once

#include "tracer/config/config.h"

namespace torchprof::inject {

// Notes why the program's ranges are not recorded, if they are not. Once, after session::arm().
void note_injection(const Config& config) noexcept;
// The same where somebody has attached: who makes his first call of NVTX from now on finds us. With the GIL held; ends
// with withdraw_nvtx().
void prepare_nvtx_late(const Config& config) noexcept;
// One has come.
void note_client() noexcept;

}  // namespace torchprof::inject
