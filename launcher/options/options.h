// The command lines of the subcommands.
//
// The options of `run` are made from settings() in tracer/config/config.h, so there is only one list. All parsers throw
// Error (one line that names the option, the value and what is allowed), or HelpWanted for --help.
#pragma once

#include <filesystem>
#include <optional>
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

// Of --align.
inline constexpr const char* kAuto = "auto";
inline constexpr const char* kOff = "off";

struct RunOptions {
  Config config;              // from the environment; options override it
  bool output_named = false;  // the command line names the run directory
  bool dry_run = false;
  std::string step{};               // what a step is (formats/timeline/units.h); empty: found
  std::string align = kAuto;        // clocks of several machines (formats/ranks/align.h): kAuto or kOff
  std::string ranks{};              // in the traces (formats/ranks/choose.h); "all"; empty: of many some
  std::filesystem::path metrics{};  // written while it runs (launcher/subcommands/metrics.h); empty: nothing
  bool is_open = false;             // the page in a browser, at the end
  Arguments command;                // empty only with --dry-run
};
RunOptions parse_run(const Arguments& arguments);

struct ReportOptions {
  std::filesystem::path input;
  formats::TableOptions tables;
  std::string step{};          // as in RunOptions; empty: as the run was told
  std::string align{};         // likewise
  std::filesystem::path html;  // not empty: write a page there, print no tables
  bool is_open = false;        // the page in a browser
  bool is_served = false;      // over HTTP, to this machine alone
  bool is_page() const { return !html.empty() || is_open || is_served; }
};
ReportOptions parse_report(const Arguments& arguments);

inline constexpr const char* kStdout = "-";
struct ExportOptions {
  std::filesystem::path input;
  std::vector<const formats::Format*> formats;  // empty: those of `run`
  bool has_dataset = false;                     // parquet; then there is one output, a directory
  // Empty: into the run directory, as `run` does it. Otherwise one file for each format, or one directory for all; or
  // kStdout for one format that is one file.
  std::vector<std::filesystem::path> outputs;
  formats::SliceRequest slice;
  formats::NativeFrames frames = formats::NativeFrames::kFolded;
  bool has_critical_path = false;
  std::string ranks{};  // as in RunOptions, and of a part in any format
  std::string step{};   // as in ReportOptions
  std::string align{};  // likewise
};
ExportOptions parse_export(const Arguments& arguments);

struct DiffOptions {
  std::filesystem::path base;
  std::filesystem::path now;
  formats::DiffOptions compared;  // without the budget
  std::filesystem::path budget;   // empty: none
  std::filesystem::path junit;    // empty: none
  std::filesystem::path html;     // empty: none
  bool is_markdown = false;
  size_t rows = 15;  // at most, of each table
};
DiffOptions parse_diff(const Arguments& arguments);

struct MergeOptions {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path output;
  std::string format = "kineto,table";
  bool discard = false;       // the raw records in the new run
  std::string align = kAuto;  // as in RunOptions
};
MergeOptions parse_merge(const Arguments& arguments);

struct CollectOptions {
  std::string run;               // a directory, or the process id of a launcher
  std::filesystem::path output;  // a file, or kStdout; empty: named after the run
};
CollectOptions parse_collect(const Arguments& arguments);

struct StepsAsked {
  uint64_t next = 0;  // so many steps, the next that all processes can record; 0: those below
  uint64_t first = 0, last = 0;
};
// Ranks, "0,4..7", as RUN/spool/control has them.
struct CtlOptions {
  std::string target;               // as for `where`
  std::string command;              // start, stop, status, capture, or what `steps` says
  std::optional<StepsAsked> steps;  // none: one of the others
  std::string ranks;                // that record them; empty: all
  std::filesystem::path output;     // of `capture`; empty: named after the steps
};
CtlOptions parse_ctl(const Arguments& arguments);
struct TopOptions {
  std::string target;    // as for `where`
  bool is_once = false;  // print one picture and end
  size_t seconds = 10;   // how long something counts where there are no windows
};
TopOptions parse_top(const Arguments& arguments);
struct MetricsOptions {
  static constexpr int64_t kSoonest = 100'000'000;
  std::string target;            // as of `top`
  std::filesystem::path output;  // empty: none
  std::string listen;            // an address for HTTP; empty: none
  int64_t every_ns = 5'000'000'000;
  bool is_once = false;  // without `listen`
};
MetricsOptions parse_metrics(const Arguments& arguments);
struct WhereOptions {
  std::string target;      // a process id, or what `report` takes
  bool no_attach = false;  // only what is being profiled already
};
WhereOptions parse_where(const Arguments& arguments);

struct AttachOptions {
  Config config;              // its window is set
  bool output_named = false;  // the command line names the run directory
  bool window_named = false;  // the command line says for how long
  bool children = false;      // what the process has started, too
  bool all_ranks = false;     // every rank of its job on this machine
  std::string step{};         // as in RunOptions
  std::string target;         // a process id, or a run directory
};
AttachOptions parse_attach(const Arguments& arguments);

struct EnvOptions {
  Config config;              // its output and its window have defaults of their own
  std::string format = "sh";  // sh, fish, csh, docker, slurm, k8s or pth
  std::filesystem::path pth;  // not empty: the directory to put the file of that format into
  bool unset = false;
};
EnvOptions parse_env(const Arguments& arguments);

Arguments parse_doctor(const Arguments& arguments);  // the command; may be empty

// The formats in a --format list; "none" stands for no format.
std::vector<const formats::Format*> formats_named(const char* list);

}  // namespace torchprof::launcher
