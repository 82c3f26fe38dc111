// Makes of the spools of a run directory its traces, its summary and the rest of run.json.
#pragma once

#include <functional>
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
  bool is_complete = true;  // everything in the spools was written
};

// Writes each format as `run` does at its end, and adds to run.json (`info`) what was found. A format that fails does
// not keep others from being written. If there is no room for run.json, none is written, but the summary is made all
// the same. Throws Error if nothing can be done at all. `tell` has lines that people are to see before anything is
// written.
using Tell = std::function<void(const std::string&)>;
Written write_run(const RunDir& dir, Info info, const std::vector<const formats::Format*>& formats,
                  formats::NativeFrames frames, const Tell& tell);

// Writes the files of one format with the names that `run` gives them. The names are added to `files`; those of Kineto
// traces also go into `traces`, at the index of each process that is in it, a rank's own file before the run's.
// Existing files are replaced only if they are among `own`. Throws Error at the first file that cannot be written.
void write_format(const formats::Format& format, const formats::Trace& trace, const std::filesystem::path& directory,
                  const std::vector<std::string>& own, std::vector<std::string>& files,
                  std::vector<std::string>& traces);

// write_run() in a process of its own, whose crash does no harm. The user can interrupt it (with the second SIGINT or
// SIGTERM), and sees its progress. Prints the text, and gives it back empty.
Written write_run_apart(const RunDir& dir, const Info& info, const std::vector<const formats::Format*>& formats,
                        formats::NativeFrames frames, const Signals& signals);

}  // namespace torchprof::launcher
