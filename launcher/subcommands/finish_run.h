// The end of a run whose spools are there: writes its formats and run.json, prints the summary and what went wrong, and
// removes the raw records where that was asked for.
//
// Throws nothing, because nothing here may change how the command's end is reported.
#pragma once

#include <string>

#include "launcher/run/signals.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"
#include "tracer/config/config.h"

namespace torchprof::launcher {

void finish_run(const RunDir& dir, const Info& info, const Config& config, const Signals& signals);

// The same for a run whose directory is not where it was: RunDir::what_befell().
void finish_without_directory(RunDir& dir, const std::string& what_befell, const Info& info);

// The new run takes the place of the earlier one. One that failed is looked at, but what it should have become is
// compared with the run before it: that one is kept.
void replace_earlier(RunDir& dir, bool has_failed);

}  // namespace torchprof::launcher
