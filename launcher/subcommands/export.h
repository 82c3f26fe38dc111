// What other subcommands write as `export` does.
#pragma once

#include "launcher/options/options.h"
#include "launcher/run_dir/input.h"

namespace torchprof::launcher {

// Into the files that `options` names, one for each format. The exit status; what could not be written has been said.
// Throws Error where nothing can be.
int export_files(const Input& input, const ExportOptions& options);

}  // namespace torchprof::launcher
