// Says before a trace is written that it will be too large for the viewers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/write/format.h"

namespace torchprof::launcher {

// One line with the size that the trace will have, the limit of the viewers and the way out; empty where none of the
// formats is a JSON trace or none gets that large. `run`: what the user may name to `torchprof export`.
std::string too_large_line(const formats::Trace& trace, const std::vector<const formats::Format*>& formats,
                           const std::filesystem::path& run);

}  // namespace torchprof::launcher
