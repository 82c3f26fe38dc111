// A timeline from spools.
#pragma once

#include <span>
#include <string>

#include "formats/timeline/timeline.h"
#include "formats/timeline/units.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// `steps`: all that the process has. Without any, or where Selection::step names something else, its steps are a unit
// (units.h), which is put into `unit`; but helpers that work for another process have none. Replays the process.
Timeline timeline_of(const Process& process, std::span<const StepSpan> steps, RecurringUnit* unit = nullptr);

// Throws Error, with the names that are near, if `step` (Selection::step) names no function, module or range of any
// process. Reads definitions alone.
void check_step(const Trace& trace, const std::string& step);

// Whether timeline_of() looks for a unit.
bool wants_unit(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
