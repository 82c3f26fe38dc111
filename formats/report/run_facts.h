// What a run was, in a few lines for people: what ran, when, where, and on what.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/report/report.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// A label and its text: ("Command", "python3 train.py"). What is not known has no line. The bytes are the program's and
// may be no UTF-8.
using RunFacts = std::vector<std::pair<std::string, std::string>>;
RunFacts facts_of(const Trace& trace);
RunFacts facts_of_file(const std::string& name, const Report& report);

}  // namespace torchprof::formats
