// A timeline from spools.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "formats/replay/replay.h"
#include "formats/timeline/timeline.h"
#include "formats/timeline/units.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// Takes part in a replay of the process. `steps`: all that the process has. Without any, or where Selection::step names
// something else, its steps are a unit (units.h), which is put into `unit`, if that is not null; but helpers that work
// for another process have none.
std::unique_ptr<Analysis<Timeline>> build_timeline(const Process& process, Replay& replay,
                                                   std::span<const StepSpan> steps, RecurringUnit* unit);
// By a replay of its own.
Timeline timeline_of(const Process& process, std::span<const StepSpan> steps);

// Throws Error, with the names that are near, if `step` (Selection::step) names no function, module or range of any
// process. Reads definitions alone.
void check_step(const Trace& trace, const std::string& step);

// Whether a timeline is to look for a unit.
bool wants_unit(const Process& process, std::span<const StepSpan> steps);

}  // namespace torchprof::formats
