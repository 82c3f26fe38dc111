// What can be written from a trace: one row a format. A new format is one file and one row.
//
//     Trace trace = load(find_spools(run / "spool"));
//     for (const Format& format : all_formats())
//       if (format.per_process)
//         for (const Process& p : trace.processes)
//           write_file(format, trace, {&p, 1}, run / file_name(format, p));
//     if (trace.processes.size() > 1) write_file(kineto, trace, trace.processes, run / merged_name(kineto));
//
// All throw Error (with the file's name and the cause) if the file cannot be written.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Format {
  std::string_view name;       // as --format takes it: "kineto"
  std::string_view extension;  // ".pt.trace.json.gz"; ".gz" at the end means compressed
  std::string_view stem;       // of the file of the whole run: "merged"
  bool per_process;  // one file for each process, and a merged one where there are several; otherwise one file for the
                     // run
  // One process: that process's trace. Several: the merged trace, its pids, flow ids and correlations namespaced.
  void (*write)(const Trace& trace, Processes processes, Output& out);
};

std::span<const Format> all_formats();
const Format* find_format(std::string_view name);  // null: there is none

void write_file(const Format& format, const Trace& trace, Processes processes, const std::filesystem::path& file,
                Existing existing = Existing::kReplaced);

// "HOST_PID.TIME.pt.trace.json.gz", TIME the start in nanoseconds since 1970; characters that do not belong into a file
// name become '_'.
std::string file_name(const Format& format, const Process& process);
// The file of the whole run: "merged.pt.trace.json.gz"; "summary.txt" for the table.
std::string merged_name(const Format& format);

}  // namespace torchprof::formats
