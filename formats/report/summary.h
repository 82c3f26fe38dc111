// Tables for people: operators, modules, Python functions, steps, and what was captured and lost.
//
//   total   time in which a call of this name was open on its thread; a call inside another of the same name
//   (recursion)
//           adds nothing
//   self    time in calls of this name less the time in what they called: for operators other operators, for Python
//   other
//           Python frames. So the self times of one kind add up to the time in which any of that kind ran
//   calls   how often it began
//           An asynchronous range (of distributed or RPC, NVTX ranges by number) has a total and no self time, and
//           takes none from what is around it, as in torch
//   step    a `ProfilerStep#N` annotation if there are any, and then its own duration counts; otherwise what ends where
//   an
//           optimizer's step ends, timed from the end of the step before (so the first one counts and has no time).
//           Steps are counted by optimizer, those of the optimizer with the most
//
//   modules forward is time in calls, backward time in operators whose forward operator the module called
//           (formats/analysis/modules.h); in detail with GPU, optimizer, parameters and memory (formats/analysis/module_costs.h). Text
//           shows the tree, JSON and CSV rows that name their parents
//   memory  self: bytes that an operator allocated less those that it freed, itself. At the peak of a device: what
//   lived
//           then, by who had allocated it (formats/memory/memory.h)
//
//   CUDA    self: time of the kernels, copies and sets that an operator launched itself; total: with those of the
//           operators inside it, in calls that are not inside another of the same name. As torch's key_averages have
//           it, which counts the latter again, but for an operator that calls another of its name and nothing else: of
//           these it leaves out the outer one, calls and all. GPU and CPU mem likewise
//   lines   of Python: formats/analysis/python_lines.h
//   kernels work of devices by name; busy is the time in which a device did any of it
//
//   steps   each with what its time went to: formats/analysis/step_parts.h. Collectives: formats/analysis/comms.h
//
// Times of several threads and processes add up, so a total may pass the wall clock.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/analysis/op_groups.h"
#include "formats/report/render.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct TableOptions {
  std::vector<std::string> tables;  // of table_names(); empty: those that a summary shows
  size_t rows = 15;                 // of each table
  // self, total, calls, average or the key of a column, without _ns or _bytes if one likes. Empty: operators by self
  // and by total time (in text), kernels and modules by total, Python by self. A table that has no such column keeps
  // its own order.
  std::string sort{};
  std::vector<std::string> columns{};  // keys of one table; "all"; empty: what the style shows by itself
  ReportStyle style = ReportStyle::kText;
  OpGrouping grouping{};    // of the operators
  bool has_totals = false;  // a line of sums below the operators; each step with what it took, each module what it cost
  std::string writing{};    // a line below "profiler": what writing the run took
};

// What `report` may be asked for: "ops", "kernels", "modules", "memory", "python", "steps", "comms", "threads",
// "processes", "profiler", "advice".
const std::vector<std::string>& table_names();
// The file of a trace does not say enough for this one.
bool wants_records(std::string_view table);

// Keys of the columns of a table.
std::vector<std::string> column_names(const std::string& table);

// Throws Error with the options of `report` where one names what there is not.
void check(const TableOptions& options);

// What `torchprof run` prints at its end and writes to summary.txt. Lines of at most 120 columns, a newline at the end.
// Always valid UTF-8.
std::string summary_text(const Trace& trace, const TableOptions& options = {});

// The same from a trace file, ours or torch.profiler's, .json or .json.gz. Throws Error naming the file and the cause.
std::string summary_text(const std::filesystem::path& trace_file, const TableOptions& options = {});

}  // namespace torchprof::formats
