// What a timeline adds up to by thread and step, as a replay's collectors make it (formats/analysis): for trace files.
#pragma once

#include <span>
#include <vector>

#include "formats/analysis/step_parts.h"
#include "formats/analysis/thread_statistics.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

std::vector<StepParts> step_parts_of(const Timeline& timeline, const std::vector<StepSpan>& steps);
std::vector<ThreadTally> threads_of(const Timeline& timeline);

}  // namespace torchprof::formats
