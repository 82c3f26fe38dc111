// The place of the preloaded library, and the environment of the command.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tracer/config/config.h"

namespace torchprof::launcher {

struct Library {
  std::filesystem::path preload;  // libtorchprof.so
  std::filesystem::path python;   // the directory with sitecustomize.py
};

// The library beside this program: in ../lib/torchprof (installed) or ../inject (the build directory). Throws Error if
// it is not there, cannot be read, or has a path that LD_PRELOAD cannot hold (it splits at spaces and colons).
Library find_library();

// The variables that `run` sets, as "NAME=VALUE". `environment`: the one with which it was started, in the same form.
//
//  * LD_PRELOAD: the user's entries in their order, then ours, once (sanitizer runtimes must come first).
//  * PYTHONPATH: ours, once (its sitecustomize runs the user's), then the user's entries in their order.
//  * NVTX_INJECTION64_PATH, unless the user has set it or wants no NVTX.
//  * TORCHPROF_OUTPUT always, with % doubled because the library expands placeholders.
//  * other TORCHPROF_* variables, if they differ from their default or were set before.
std::vector<std::string> variables(const std::vector<std::string>& environment, const Library& library,
                                   const Config& config, const std::filesystem::path& run_directory);
// The same with a pattern of the run directory, whose placeholders the library expands.
std::vector<std::string> variables_of_pattern(const std::vector<std::string>& environment, const Library& library,
                                              const Config& config, const std::string& output);
// A path as a pattern that the library expands to it.
std::string doubled_percent(const std::string& path);

// The variables that lead to the library, with what is left of them without it: as they were before variables() changed
// them. An empty value: nothing.
std::vector<std::string> without_library(const std::vector<std::string>& environment, const Library& library);

// `environment` with `variables` in it.
std::vector<std::string> with_variables(std::vector<std::string> environment,
                                        const std::vector<std::string>& variables);

// The environment of this process.
std::vector<std::string> current_environment();

// The value of NAME; empty if there is none.
std::string value_in(const std::vector<std::string>& environment, const std::string& name);

// Whether LD_PRELOAD has the library already: then a `torchprof run` is around this one.
bool preloads(const std::vector<std::string>& environment, const Library& library);

}  // namespace torchprof::launcher
