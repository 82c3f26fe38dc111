// The part of a Kineto trace before the events: what was captured and lost, on which machine and devices, and what
// modules and optimizers hold.
#pragma once

#include <cstdint>
#include <string>

#include "formats/trace/trace.h"

namespace torchprof::formats::kineto {

// From the opening brace to the bracket of the events. `base`: Unix time in ns from which the events' times count.
std::string header_of(const Trace& trace, Processes processes, int64_t base);

}  // namespace torchprof::formats::kineto
