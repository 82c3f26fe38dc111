// Tables for people: operators, modules, Python functions, steps, and what was captured and lost.
//
//   total   time in which a call of this name was open on its thread; a call inside another of the same name
//   (recursion)
//           adds nothing
//   self    time in calls of this name less the time in what they called: for operators other operators, for Python
//   other
//           Python frames. So the self times of one kind add up to the time in which any of that kind ran
//   calls   how often it began
//   step    a `ProfilerStep#N` annotation if there are any, and then its own duration counts; otherwise what ends where
//   an
//           optimizer's step ends, timed from the end of the step before (so the first one counts and has no time).
//           Steps are counted by optimizer, those of the optimizer with the most
//
//   modules forward is time in calls, backward time in operators whose forward operator the module called
//           (formats/modules.h)
//   memory  self: bytes that an operator allocated less those that it freed, itself. At the peak of a device: what
//   lived
//           then, by who had allocated it (formats/memory.h)
//
//   CUDA    self: time of the kernels, copies and sets that an operator launched itself; total: with those of the
//           operators inside it, in calls that are not inside another of the same name. As torch's key_averages have
//           it, which counts the latter again
//   kernels work of devices by name; busy is the time in which a device did any of it
//
// Times of several threads and processes add up, so a total may pass the wall clock.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace.h"

namespace torchprof::formats {

struct TableOptions {
  std::vector<std::string> tables;  // of table_names(); empty: those that a summary shows
  size_t rows = 15;                 // of each table
  // One of sort_names(), largest first. Empty: operators by self and by total time, modules by total, Python by self.
  std::string sort{};
};

// What `report` may be asked for: "ops", "kernels", "modules", "memory", "python", "steps", "processes".
const std::vector<std::string>& table_names();

// "self", "total", "calls", "average".
const std::vector<std::string>& sort_names();

// What `torchprof run` prints at its end and writes to summary.txt. Lines of at most 120 columns, a newline at the end.
// Always valid UTF-8.
std::string summary_text(const Trace& trace, const TableOptions& options = {});

// The same from a trace file, ours or torch.profiler's, .json or .json.gz. Throws Error naming the file and the cause.
std::string summary_text(const std::filesystem::path& trace_file, const TableOptions& options = {});

}  // namespace torchprof::formats
