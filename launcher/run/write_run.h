// From the spools of a run directory to its traces, its summary and the rest of run.json.
#pragma once

#include <string>
#include <vector>

#include "formats/trace/native_stacks.h"
#include "formats/write/format.h"
#include "launcher/run/signals.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"

namespace torchprof::launcher {

struct Written {
  std::string text;         // lines for people: the summary, where the traces are
  std::string trouble;      // lines for people: what could not be read or written
  bool is_complete = true;  // all that is in the spools was written
};

// Writes each format as `run` does at its end, and `info` with what was found to run.json. One format that fails does
// not keep the others back; without room for run.json none is written, and what was recorded is told all the same.
// Throws Error if nothing can be done at all.
Written write_run(const RunDir& dir, Info info, const std::vector<const formats::Format*>& formats,
                  formats::NativeFrames frames = formats::NativeFrames::kFolded);

// Writes the files of one format as `run` names them; their names go to `files`, and those of single processes to
// `traces`, which has a place for each process. Files that are there are replaced only if they are among `own`. Throws
// Error at the first that cannot be written.
void write_format(const formats::Format& format, const formats::Trace& trace, const std::filesystem::path& directory,
                  const std::vector<std::string>& own, std::vector<std::string>& files,
                  std::vector<std::string>& traces);

// In a process of its own, which the user can interrupt (the second SIGINT or SIGTERM), whose crash harms nobody and
// which shows its progress on a terminal. Prints what there is to say. True: it is complete.
bool write_run_apart(const RunDir& dir, const Info& info, const std::vector<const formats::Format*>& formats,
                     formats::NativeFrames frames, const Signals& signals);

}  // namespace torchprof::launcher
