// What is said below the table of steps: which were captured, how long they took over the run, which ones were unusual
// and why, and for which rank the others wait. One line each. Ranks that do the same steps are said once.
#pragma once

#include <string>
#include <vector>

#include "formats/report/report.h"

namespace torchprof::formats {

// `is_text`: for letters of one width, where a mark can stand below the part that it is about.
std::vector<std::string> step_remarks(const std::vector<ReportPart>& parts, bool is_text);

}  // namespace torchprof::formats
