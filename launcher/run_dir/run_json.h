// The types of the keys of run.json that a command reads (run_info.h says what they mean). Of a file that was damaged
// or written by somebody else only the values with the right types are used.
//
// Compatibility: a key keeps its meaning and its type, and unknown keys are ignored, so that a new key takes no new
// version. `version` grows when an older torchprof would misread the file: that one then uses none of its facts, says
// so, and never writes to the directory; it still reads the spools. A file without `version` is of version 1.
// Version history:
//   1   the first; until 0.2.0 it is not said
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace torchprof::launcher {

inline constexpr int kRunVersion = 1;

// An empty text, or what to say of a file of a newer version: "is of version 2, this torchprof reads ..."
std::string newer_version(const nlohmann::ordered_json& info);

// Removes values of the wrong type from `info`; unknown keys stay. Returns a text about the first one
// ("'processes/0/pid' is a text, not a whole number"), or an empty one. It is recursive: the caller limits the depth.
std::string drop_misfits(nlohmann::ordered_json& info);

}  // namespace torchprof::launcher
