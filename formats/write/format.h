// The formats that can be written from a trace. A new format is one file and one row of the table in format.cpp.
//
//     Trace trace = load(find_spools(run / "spool"));
//     const Processes all = trace.processes;
//     for (const Format& format : all_formats())
//       for (const PlannedFile& file : files_of(format, all))
//         write_file(format, trace, all.subspan(file.first, file.count), run / file.name);
//
// All functions throw Error (with the file's name and the cause) if the file cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

enum class Files : uint8_t {
  kOfRun,            // one for the run
  kOfRunAndProcess,  // one for the run, and if it has several processes one for each
  kOfRanks,          // one for each rank; one for each process if the run has no ranks
};

struct Format {
  std::string_view name;       // for --format: "kineto"
  std::string_view stem;       // of the run's file: "trace"; empty: there is none
  std::string_view extension;  // ".json.gz"; ".gz" at the end means compressed
  Files files;
  // Several processes: all in one trace, in which pids, flow ids and correlations are made unique.
  void (*write)(const Trace& trace, Processes processes, Output& out);
};

std::span<const Format> all_formats();
const Format* find_format(std::string_view name);  // null: no such format

void write_file(const Format& format, const Trace& trace, Processes processes, const std::filesystem::path& file,
                Existing existing = Existing::kReplaced);

// The file of the whole run: "trace.json.gz", or for the tables "summary.txt"; empty if the format has none.
std::string run_file(const Format& format);

// A file of a format, and which of the processes are in it.
struct PlannedFile {
  std::string name;  // the run's, or "rank0.pt.trace.json.gz", "process4711.pt.trace.json.gz" (process4711-2, ...)
  size_t first, count;
};
std::vector<PlannedFile> files_of(const Format& format, Processes all);

// A file beside these that says how they belong together; empty: there is none.
std::string manifest_file(const Format& format, Processes all);
void write_manifest(const Format& format, Processes all, const std::filesystem::path& file, Existing existing);

// Whether a file of this name may be an output of this version or an earlier one.
bool may_be_output(std::string_view file);

}  // namespace torchprof::formats
