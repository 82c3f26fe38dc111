// Windows and steps by time and number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// The first window that ends after `t` (Unix time, ns): the one that holds `t`, or the next. Null: there is none.
const Window* window_after(const Process& process, int64_t t);

// "0-4, 10-12, 100"; more than `most` parts: those in the middle are "...". Numbers in rising order.
std::string step_ranges(const std::vector<uint64_t>& numbers, size_t most);

}  // namespace torchprof::formats
