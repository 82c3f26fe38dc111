// What calls that recur make together: the passes of the loop that makes them, or each for itself (units.h: pass,
// request).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/timeline/timeline_index.h"
#include "formats/timeline/units.h"

namespace torchprof::formats {

// Of calls in the order of their rows and spans. `covers`: the calls have most of the time; else the passes of their
// loop must have `enough` of it, in ns. Nothing: they do not recur, or have too little of it.
std::optional<RecurringUnit> unit_of_calls(const Timeline& timeline, const UnitRequest& request,
                                           std::vector<CallAt> calls, bool covers, int64_t enough);

// The window of the request that begins last before a time, which may end before it; null: there is none.
const StepSpan* window_before(const UnitRequest& request, int64_t time);

}  // namespace torchprof::formats
