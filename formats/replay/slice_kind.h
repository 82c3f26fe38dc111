// What a slice is, as formats with a column for it say.
#pragma once

#include <string_view>

#include "formats/replay/replay.h"
#include "formats/trace/name_role.h"

namespace torchprof::formats {

// "function", "module", "optimizer", "c_call", "gc", "blind" (not recorded); of operators and annotations "op",
// "backward", "annotation", "nvtx", "torchscript", "other".
std::string_view kind_of(const Slice& slice, NameRole role);

}  // namespace torchprof::formats
