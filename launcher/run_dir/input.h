// The input of `report`, `export` and other subcommands: a run directory, a directory of spools, a spool, a trace, or
// the archive of a run (archive.h), which is unpacked for as long as the Input lives.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/trace/trace.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/temporary_directory.h"

namespace torchprof::launcher {

struct Input {
  std::unique_ptr<TemporaryDirectory> unpacked;  // set for an archive: the others lie in it. Goes last
  std::vector<std::filesystem::path> spools;     // if there are any, they are read
  std::filesystem::path trace;                   // otherwise the trace file, if there is one that stands for the input
  std::string several;                           // otherwise what to say of its traces, of which none stands for all
  std::optional<RunDir> run;                     // set for a run directory
};

// The process whose id this is; none: it is no number, or the name of a file.
std::optional<uint32_t> process_named(const std::string& target);

// `target`; but if it is the process id of a `torchprof run`, that one's run directory. Only a launcher of this user
// is known.
std::string without_launcher(const std::string& target);

// The spool that a process writes whose id this is; empty if it is no number, or the name of a file. Throws Error if
// there is no such process, or it has no spool that can be seen.
std::filesystem::path spool_of_process(const std::string& target);

// What is said of a process that runs and has none.
std::string no_spool_of(uint32_t pid);

// Throws Error naming the path and what is wrong with it. Several traces are no error here: not everybody needs one.
// Of an archive that is damaged a line says so, and what can be read of it is the input. Lines for people name what was
// unpacked by the archive (show_as()).
Input find_input(const std::filesystem::path& path);

// The trace of an input without spools. Throws Error if it has several.
const std::filesystem::path& one_trace(const Input& input);

// Throws Error if the input has no spools, is not a run, and its file does not begin like a trace.
void demand_trace(const Input& input, const std::filesystem::path& path);

// Throws Error if a file that is to be written, which the user named, is this one that is read.
void demand_other(const std::filesystem::path& read, const std::filesystem::path& output);
// The same for all files of an input. `path`: of the input.
void demand_not_input(const Input& input, const std::filesystem::path& path, const std::filesystem::path& output);

// Throws Error if the input is an archive: who wants a run that goes on, or writes into it, can do nothing with that.
// `instead`: what to do.
void demand_no_archive(const Input& input, const std::filesystem::path& path, const std::string& instead);

// Loads its spools, and prints a complaint for each that cannot be read. Throws Error naming `path`, as the user gave
// it, if none can be read.
// `align`: of the option; empty: as run.json says.
formats::Trace load(const Input& input, const std::filesystem::path& path, const std::string& align = {});

// The same of a run's own spools, without a word about those that cannot be read.
formats::Trace load_spools(const std::vector<std::filesystem::path>& spools, const std::string& align,
                           const Info& info);

// Sets what a step is in all processes of the trace: `step`, or where that is empty what `info`, of run.json, says.
// Throws Error if nothing of that name was called.
void choose_step(formats::Trace& trace, const std::string& step, const Info& info);

}  // namespace torchprof::launcher
