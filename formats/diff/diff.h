// Two runs, and what got slower from one to the other.
//
//   compared  if both runs have steps: what each step spent (formats/replay/step_samples.h), over all processes with
//             steps, without their first steps. Otherwise the totals of all processes, one number each
//   windows   of a run that -w auto captured in part (formats/replay/step_samples.h): names are compared in the steps
//             of its beginning, of typical windows and of its last steps. `step` is that of all steps to which no
//             window has added anything, if both runs have them, otherwise that of the captured ones
//   time      of a name in a step: the median over steps; if that is 0 in one run (the name does not come in most
//             steps), the mean. Operators and Python functions: self time; modules: their own time in forward and
//             backward; kernels: GPU work; cuda: calls of CUDA, which are not in the operators' self time. Modules
//             are matched by class and path, Python functions by file and name, because numbers of instances and lines
//             change when a program does
//   counts    calls a step; allocated: bytes that an operator or a module asked for itself in a step; peak: the most
//             that was allocated on a device. Counts are not tested. If one run says nothing of memory (Perfetto's
//             files have none by operator, those of nvprof and nsys none at all), allocated and peak are not compared.
//             Nor are peaks of the CPU judged if one run alone has several windows: those are of what one of the
//             windows itself has allocated
//   tested    a difference of times is real if rank_test.h finds it with p <= 0.01, corrected by Holm for all names of
//             the table that have their share. It takes kMinSteps steps in each run. With fewer, or for totals, nothing
//             is tested, and every difference counts
//   share     a name that takes less than this part of its table's time in both runs is not judged, nor are its calls:
//             it is too small to matter, and many such names would blunt the test. Allocated: its part of the bytes
//   waits     Python functions that only wait (formats/trace/waiting.h) are left out of the table and of the shares,
//             and are not judged, unless asked for: their time is idle. A note says how much it is
//
// What the test cannot see: all steps of a run may be slower because of its machine, its neighbours, or where its
// memory happened to lie. The limit has to be above the differences between two runs of the same program.
//
// A name that was not there, or had none of the metric, is judged by what it adds: its time by that of the step, or
// without steps by all of its table; calls and bytes by all of their table. One that vanished is only shown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/analysis/statistics.h"

namespace torchprof::formats {

inline constexpr size_t kMinSteps = 8;  // two samples of 8 can differ with p = 0.0002, enough for 60 names at once
inline constexpr double kSignificance = 0.01;

struct DevicePeak {
  int64_t bytes = 0;          // of the process with the most
  bool is_of_window = false;  // the CPU's, of several windows: what one of them itself has allocated
};

// One of the two runs.
struct Measured {
  std::string name;  // as the user named it
  size_t processes = 0;
  size_t without_steps = 0;                   // how many of the processes have no steps
  Statistics sum{};                           // over all processes
  std::map<std::string, DevicePeak> peaks{};  // by device ("CPU")
  PartTimes typical{};                        // what typical steps are spent on: the sum over the processes with steps
};
// `warmup`: how many first steps of each process do not count. Both throw Error like the readers.
Measured measure(const Trace& trace, const std::string& name, size_t warmup);
Measured measure(const std::filesystem::path& trace_file, const std::string& name, size_t warmup);

enum class Metric : uint8_t { kStep, kTotal, kOps, kModules, kKernels, kCuda, kPython, kCalls, kAllocated, kMemory };
// "step", "total", "ops", "modules", "kernels", "cuda", "python", "calls", "allocated", "memory", as in Metric.
const std::vector<std::string>& metric_names();
std::optional<Metric> metric_named(std::string_view name);

struct Quantity {
  double base = 0;
  double now = 0;
  std::optional<double> p{};  // none: not tested
  bool is_minor = false;
  // now / base - 1; infinite if base is 0.
  double change() const;
  bool is_real() const { return base != now && (!p || *p <= kSignificance); }
};

enum class Fate : uint8_t { kBoth, kNew, kVanished };

struct DiffRow {
  std::string name;
  Fate fate = Fate::kBoth;
  Quantity time{};  // ns
  Quantity calls{};
  Quantity bytes{};
  bool is_left_out = false;  // a Python function that only waits: a budget may name it, but it is not shown or judged
};

struct DiffTable {
  Metric metric;              // the table's metric; that of kStep has kTotal, too
  std::vector<DiffRow> rows;  // sorted by change, largest first
};

// One judgement; a test case in JUnit's XML.
struct Check {
  std::string suite;  // "ops", "budget"
  std::string name;
  std::string text;  // "self time per step 1.000 ms -> 2.000 ms, +100.0 %, limit 10 %"
  bool is_passed = true;
};

struct Budget;  // formats/diff/budget.h

struct DiffOptions {
  std::optional<double> fail_over{};  // percent
  std::vector<Metric> metrics{};      // to which it applies; none: kStep, or kTotal if steps are not compared
  double share = 1;                   // percent
  size_t warmup = 1;
  bool has_waits = false;  // show and judge Python functions that only wait, too
  const Budget* budget = nullptr;
};

struct Diff {
  std::vector<std::string> head;  // lines: what was compared
  bool by_step = false;
  std::vector<DiffTable> tables;
  std::vector<std::string> notes;  // what could not be compared or tested
  std::vector<Check> checks;
  size_t failed() const;
};

Diff compare(const Measured& base, const Measured& now, const DiffOptions& options);

// diff_text(): for a terminal, in lines of at most 120 columns. diff_markdown(): for a job summary, in GitHub's
// markdown. diff_junit(): for CI, in JUnit's XML with a suite for each metric. `rows`: the most of each table. All give
// valid UTF-8 without control characters, whatever the names hold.
std::string diff_text(const Diff& diff, size_t rows);
std::string diff_markdown(const Diff& diff, size_t rows);
std::string diff_junit(const Diff& diff);

}  // namespace torchprof::formats
