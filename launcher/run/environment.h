// Where the preloaded library lies, and the environment of the command.
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

// Beside this program: ../lib/torchprof (installed), or ../inject (the build directory). Throws Error if it is not
// there, cannot be read, or lies at a path that the variables cannot hold (LD_PRELOAD splits at spaces and colons).
Library find_library();

// The variables that `run` sets, as "NAME=VALUE", given the `environment` that it was started with ("NAME=VALUE" too).
//
//  * LD_PRELOAD: the user's entries in their order, ours last (sanitizer runtimes must come first), once.
//  * PYTHONPATH: ours first (its sitecustomize hands over to the user's), once, then the user's entries in their order.
//  * NVTX_INJECTION64_PATH unless the user has one, or wants no NVTX.
//  * TORCHPROF_OUTPUT always, with % doubled: the library expands placeholders.
//  * TORCHPROF_* that differ from their default or were set before.
std::vector<std::string> variables(const std::vector<std::string>& environment, const Library& library,
                                   const Config& config, const std::filesystem::path& run_directory);

// `environment` with `variables` in it.
std::vector<std::string> with_variables(std::vector<std::string> environment,
                                        const std::vector<std::string>& variables);

// This process's own.
std::vector<std::string> current_environment();

// The value of NAME; empty if there is none.
std::string value_in(const std::vector<std::string>& environment, const std::string& name);

// LD_PRELOAD holds the library already: a torchprof run is around this one.
bool preloads(const std::vector<std::string>& environment, const Library& library);

}  // namespace torchprof::launcher
