// Command lines of the subcommands.
//
// The options of `run` are made from tracer/config/config.h's settings(): there is one list. All parsers throw Error (one line
// that names the option, the value and what is allowed) and HelpWanted for --help.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/diff/diff.h"
#include "formats/replay/slice_request.h"
#include "formats/report/summary.h"
#include "formats/trace/native_stacks.h"
#include "formats/write/format.h"
#include "tracer/config/config.h"

namespace torchprof::launcher {

using Arguments = std::vector<std::string>;  // without the program and the subcommand

struct HelpWanted {
  std::string text;
};

struct RunOptions {
  Config config;              // the environment, then the options over it
  bool output_named = false;  // the run directory was named on the command line
  bool dry_run = false;
  Arguments command;  // not empty but for --dry-run
};
RunOptions parse_run(const Arguments& arguments);

struct ReportOptions {
  std::filesystem::path input;
  formats::TableOptions tables;
  std::filesystem::path html;  // not empty: a page there, no tables
};
ReportOptions parse_report(const Arguments& arguments);

struct ExportOptions {
  std::filesystem::path input;
  std::vector<const formats::Format*> formats;  // none named: what the run was to write
  std::vector<std::filesystem::path> outputs;   // none: into the run directory, as `run` would have; a file for each
                                                // format, or one directory for all
  formats::SliceRequest slice;
  formats::NativeFrames frames = formats::NativeFrames::kFolded;
};
ExportOptions parse_export(const Arguments& arguments);

struct DiffOptions {
  std::filesystem::path base;
  std::filesystem::path now;
  formats::DiffOptions compared;  // but for the budget
  std::filesystem::path budget;   // empty: none
  std::filesystem::path junit;    // likewise
  bool is_markdown = false;
  size_t rows = 15;  // of each table
};
DiffOptions parse_diff(const Arguments& arguments);

struct MergeOptions {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path output;
  std::string format = "kineto,table";
  bool keep_spool = false;
};
MergeOptions parse_merge(const Arguments& arguments);

struct CtlOptions {
  std::string target;   // as for `where`
  std::string command;  // start, stop or status
};
CtlOptions parse_ctl(const Arguments& arguments);
std::string parse_where(const Arguments& arguments);  // the process or what `report` takes
Arguments parse_doctor(const Arguments& arguments);   // the command, maybe none

// The formats of a --format list that are to be written: "none" is none of them.
std::vector<const formats::Format*> formats_named(const char* list);

}  // namespace torchprof::launcher
