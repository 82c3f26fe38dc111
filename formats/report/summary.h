// Tables for people: operators, modules, Python functions, steps, and what was captured and lost. The definitions of
// all values are here:
//
//   total   time in which a call of this name was open on its thread; a call inside another of the same name
//           (recursion) adds nothing
//   self    time in calls of this name without what they called of the same kind: for operators without other
//           operators, for Python without other Python frames. So the self times of one kind add up to the time in
//           which anything of that kind ran. The calls of CUDA that an operator or an annotation makes itself are not
//           in its self time, but rows of a table of their own: percentages of operators are of both together. So it is
//           in torch's key_averages, where calls are rows like operators (torch/autograd/profiler.py,
//           _parse_kineto_results, 2.6 and 2.14), and in tb_plugin. A module's and a thread's time has them
//   waits   of Python functions and lines: it only waits (formats/trace/waiting.h). Tables for people leave it out
//           unless asked; it has no share, as idle time is not spent. The totals have it apart
//   calls   how often it began
//           Of two that cross, as ranges do, the time of both is that of the later one. A range that may end on another
//           thread (of distributed or RPC, a range of NVTX by number) has a total and no self time, and takes none from
//           what is around it, as in torch. Ranges of one name that overlap all count in the total
//   step    a `ProfilerStep#N` annotation if there are any, with its own duration. Otherwise a step ends where an
//           optimizer's step ends, and is timed from the end of the step before (so the first one counts and has no
//           time); with several optimizers, the steps of the one that has the most count. What is left after the last
//           step is none, also where another tool's recording ended within a step (formats/replay/steps.h)
//
//   modules forward is time in calls, backward is time in operators whose forward operator the module called,
//           recompute is time in calls that a backward makes (formats/analysis/modules.h); in detail with GPU,
//           optimizer, parameters and memory (formats/analysis/module_costs.h). Text shows the tree; JSON and CSV have
//           rows that name their parents
//   memory  self: bytes that an operator allocated itself, less those that it freed. At the peak of a device: what was
//           alive then, by the owner that had allocated it (formats/memory/memory.h)
//
//   CUDA    self: time of the kernels, copies and sets that an operator launched itself; total: with those of the
//           operators inside it, without calls inside another of the same name. As in torch's key_averages, except that
//           these count the latter, too; and where an operator calls only another of its name, these leave out the
//           outer one, calls and all. GPU mem and CPU mem likewise
//   calls   of the CUDA runtime and driver: total and share are time on the CPU; a call of the driver inside one of
//           the runtime counts for both in total, and once in the share. What a call does is known by its name
//           (formats/gpu/cuda_api.h)
//   lines   of Python: formats/analysis/python_lines.h
//   kernels work of devices by name; busy is the time in which a device did any of it. Text and Markdown show short
//           names (formats/gpu/kernel_names.h); kernels that share one keep their rows
//
//   steps   in detail each step with what its time was spent on: formats/analysis/step_parts.h
//   comms   collectives: formats/ranks/calls.h, who waits for whom: formats/ranks/waits.h
//   gpu     what devices did and what their streams waited for: formats/timeline/gpu_time.h
//   launches  how work gets to devices, and how fast copies are: formats/timeline/launches.h
//   critical  what steps' time was spent on along the critical path, and without it: formats/timeline/critical_path.h
//
// A trace file gives the tables of the run that wrote it, with the same values. What it does not hold: costs of modules
// but for times, what called an operator, groups and bytes of gloo's collectives (shapes of lists of tensors come
// without types), and where memory was allocated in the __enter__ and __exit__ of an annotation: its slice is the block
// between them. Occupancy is in whole percents there, and a trace for Perfetto has no memory by operator and no blocks
// per SM. Which functions are the program's own is there known by the names of their files.
//
// Times of several threads and processes add up, so a total may pass the wall clock.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/analysis/op_groups.h"
#include "formats/report/render.h"
#include "formats/report/report.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct TableOptions {
  std::vector<std::string> tables;  // names of table_names(); empty: those of a summary
  std::optional<size_t> rows{};     // at most, of each table; none: 15, of many processes' summary 5
  // self, total, calls, average, or the key of a column, with or without _ns or _bytes. Empty: operators by self and
  // (in text) by total time, kernels and modules by total, Python by self. A table without such a column keeps its own
  // order.
  std::string sort{};
  std::string filter{};                // only rows that have this in one of their texts (filter_rows()); empty: all
  std::vector<std::string> columns{};  // keys of one table, or "all"; empty: those that the style shows
  ReportStyle style = ReportStyle::kText;
  OpGrouping grouping{};        // for the operators
  bool has_full_names = false;  // kernels in text and Markdown: their whole names, however long
  // A row for each process, also for workers that do the same (formats/trace/roles.h), which are one otherwise.
  bool has_all_processes = false;
  std::string step{};  // of a trace file: what a step is (formats/timeline/units.h). Of a run: Selection::step
  bool has_own_functions = false;  // the program's own Python functions by total time, as summaries of text have them
  bool has_waits = false;          // --waits: Python functions and lines that only wait, too
  bool has_totals = false;  // --totals: sums below the operators, and details of steps, modules, Python and memory
  std::string writing{};    // a line below the table profiler: how long writing took
  bool leaves_out_empty = false;  // named tables without rows, too; otherwise they say why they have none
  // Of text: columns of the terminal that it is for, where what does not fit is left out; 0: of none, kWidth.
  size_t terminal = 0;
};

// The tables that `report` has: "ops", "kernels", "calls", "modules", "memory", "python", "steps", "comms", "threads",
// "gpu", "launches", "critical", "processes", "profiler", "advice".
const std::vector<std::string>& table_names();
// Whether the table needs raw records; a trace file is not enough.
bool wants_records(std::string_view table);

// The keys of a table's columns.
std::vector<std::string> column_names(const std::string& table);

// Throws Error, with the option's name, if an option names something that does not exist.
void check(const TableOptions& options);

// What `torchprof run` prints at its end and writes to summary.txt, and what `torchprof report` prints. In text lines
// have at most 120 columns, or those of the terminal, but for whole names, with a newline at the end. Always valid
// UTF-8.
std::string summary_text(const Trace& trace, const TableOptions& options = {});
// The same in two parts, for who wants the data, too.
Report report_for(const Trace& trace, const TableOptions& options);
Report report_for(TraceFile& file, const std::string& name, const TableOptions& options);  // read with timelines
std::string summary_text(const Report& report, const TableOptions& options);

// The same from a trace file of any form that formats/read/read_trace.h reads. Throws Error naming the file and the
// cause.
std::string summary_text(const std::filesystem::path& trace_file, const TableOptions& options = {});

}  // namespace torchprof::formats
