// The types of the keys of run.json that a command reads (run_info.h says what they mean). Of a file that was damaged
// or written by somebody else only the values with the right types are used.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace torchprof::launcher {

// Removes values of the wrong type from `info`; unknown keys stay. Returns a text about the first one
// ("'processes/0/pid' is a text, not a whole number"), or an empty one. It is recursive: the caller limits the depth.
std::string drop_misfits(nlohmann::ordered_json& info);

}  // namespace torchprof::launcher
