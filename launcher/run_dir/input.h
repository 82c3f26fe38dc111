// What `report` and `export` are given: a run directory, a directory of spools, a spool, or a trace.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/trace/trace.h"
#include "launcher/run_dir/run_dir.h"

namespace torchprof::launcher {

struct Input {
  std::vector<std::filesystem::path> spools;  // to be read where there are any
  std::filesystem::path trace;                // otherwise the trace (.json, .json.gz), if there is one
  std::optional<RunDir> run;                  // set for a run directory
};

// Throws Error naming the path and what it could have been.
Input find_input(const std::filesystem::path& path);

// What has no spools and is not a run: throws Error unless its file begins as a trace does.
void demand_trace(const Input& input, const std::filesystem::path& path);

// Its spools. What cannot be read is complained of; throws Error naming `path`, as the user gave it, if nothing can.
formats::Trace load(const Input& input, const std::filesystem::path& path);

}  // namespace torchprof::launcher
