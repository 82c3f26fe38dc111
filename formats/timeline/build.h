// A timeline from spools.
#pragma once

#include <span>

#include "formats/timeline/timeline.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// `steps`: all that the process has. Replays the process.
Timeline timeline_of(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
