// Arms the session, as the constructor does in a process that is to be traced; for entries that come later.
#pragma once

#include <climits>

#include "tracer/config/config.h"

namespace torchprof::inject {

// The run directory, absolute: the program may change its working directory before its first event.
bool resolve_output(const Config& config, char (&output)[PATH_MAX], ErrorText& error) noexcept;

// Arms the session and tells its sources of the window, but starts none of them. By one thread at a time.
void arm_session(const Config& config, const char* output) noexcept;

// The first call reads the settings and arms the session. Any thread. False: nothing is recorded here.
bool arm_once() noexcept;
// The same for an interpreter that the program has loaded after the start of the process.
void arm_for_python() noexcept;

// Whether the library came when an interpreter was running already: nothing that was loaded before resolves to it.
bool is_late() noexcept;

}  // namespace torchprof::inject
