// torchprof ctl RUN capture: the same steps of the ranks that are asked for, as one trace: asked for, waited for, and
// written from the spools, while the program goes on.
#pragma once

#include <string>

#include "launcher/options/options.h"

namespace torchprof::launcher {

// The exit status: 1 if a process does not record them, or has ended before they were over. Throws Error where there is
// nothing to be written.
int capture(const std::string& target, const CtlOptions& options);

}  // namespace torchprof::launcher
