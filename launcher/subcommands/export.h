// What other subcommands write as `export` does.
#pragma once

#include "launcher/options/options.h"
#include "launcher/run_dir/input.h"

namespace torchprof::launcher {

// Into the files that `options` names, one for each format. `input` has spools. Throws Error; what went wrong has been
// said where it has no text.
void export_slice(const Input& input, const ExportOptions& options);

}  // namespace torchprof::launcher
