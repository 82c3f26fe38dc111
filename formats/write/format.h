// The formats that can be written from a trace. A new format is one file and one row of the table in format.cpp.
//
//     Trace trace = load(find_spools(run / "spool"));
//     for (const Format& format : all_formats())
//       if (format.per_process)
//         for (const Process& p : trace.processes)
//           write_file(format, trace, {&p, 1}, run / file_name(format, p));
//     if (trace.processes.size() > 1) write_file(kineto, trace, trace.processes, run / merged_name(kineto));
//
// All functions throw Error (with the file's name and the cause) if the file cannot be written.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Format {
  std::string_view name;       // for --format: "kineto"
  std::string_view extension;  // ".pt.trace.json.gz"; ".gz" at the end means compressed
  std::string_view stem;       // of the whole run's file: "merged"
  // True: one file for each process, and a merged one if there are several. False: one file for the run.
  bool per_process;
  // Several processes: the merged trace, in which pids, flow ids and correlations are made unique.
  void (*write)(const Trace& trace, Processes processes, Output& out);
};

std::span<const Format> all_formats();
const Format* find_format(std::string_view name);  // null: no such format

void write_file(const Format& format, const Trace& trace, Processes processes, const std::filesystem::path& file,
                Existing existing = Existing::kReplaced);

// "HOST_PID.TIME.pt.trace.json.gz", with TIME the start in nanoseconds since 1970. Characters that do not belong in a
// file name become '_'.
std::string file_name(const Format& format, const Process& process);
// The file of the whole run: "merged.pt.trace.json.gz", or for the tables "summary.txt".
std::string merged_name(const Format& format);

}  // namespace torchprof::formats
