// What stands before the events of a Kineto trace: what was captured and lost, on what, with which devices, and what
// modules and optimizers hold.
#pragma once

#include <cstdint>
#include <string>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// From the opening brace to that of the events. `base`: what their times count from, Unix, ns.
std::string kineto_header(const Trace& trace, Processes processes, int64_t base);

}  // namespace torchprof::formats
