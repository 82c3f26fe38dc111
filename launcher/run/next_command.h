// The command that shows more of what a summary has first: the table behind the first finding, or behind what takes the
// time where nothing was found.
#pragma once

#include <filesystem>
#include <string>

#include "formats/report/report.h"

namespace torchprof::launcher {

// "torchprof report RUN -t memory", with `run` as a shell takes it, and behind it in parentheses what it shows. Empty:
// nothing was recorded of which a table would have more. `report`: with advice and operators.
std::string next_command(const formats::Report& report, const std::filesystem::path& run);

}  // namespace torchprof::launcher
