// Which type each key of run.json has that a command reads (run_info.h says what they mean). A file that was damaged or
// written by somebody else is read for what fits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace torchprof::launcher {

// Takes out of `info` what has another type than its key has; keys that are not known stay. Empty, or what the first of
// them was: "'processes/0/pid' is a text, not a whole number". Nested no deeper than the caller allows.
std::string drop_misfits(nlohmann::ordered_json& info);

}  // namespace torchprof::launcher
