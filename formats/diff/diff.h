// Two runs, and what got slower from one to the other.
//
//   what is compared  where both runs have steps: what each step spent (formats/replay/step_samples.h), of all processes with
//            steps, without the first ones. Otherwise the totals of all processes, one number each
//   time     of a name in a step: the median over steps; where that is 0 in one run (what does not come in most steps):
//            the mean. Operators and Python functions: self time; modules: their own in forward and backward; kernels:
//            work of GPUs. Modules go by class and path, Python functions by file and name: numbers of instances and
//            lines change when a program does
//   calls    of an operator, kernel ... a step; allocated: bytes that an operator or a module asked for itself, a step;
//            peak: most that was allocated on a device. These are counts, and not tested. Where one run says nothing of
//            memory (Perfetto's files have none by operator, nor those of nvprof and nsys), neither is compared
//   tested   a difference of times is real if formats/diff/rank_test.h finds it with p <= 0.01, corrected by Holm for all
//            names of the table that have their share. It needs kMinSteps steps of each run; with fewer, or of totals,
//            nothing is tested, and any difference counts as it is
//   share    a name that takes less than this part of its table's time in both runs is not judged, for its calls
//            neither: it is too small to matter, and so many would blunt the test. Of what is allocated: of the bytes
//
// What the test cannot see: all steps of a run may be slower because of its machine, its neighbours or where its memory
// came to lie. The limit has to be above what two runs of the same program differ by.
//
// A new or a vanished name is shown and fails nothing by itself: what it costs is in `step` and `total`.
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

// One of the two runs.
struct Measured {
  std::string name;  // as the user named it
  size_t processes = 0;
  size_t without_steps = 0;                // of them
  Statistics sum{};                        // of all
  std::map<std::string, int64_t> peaks{};  // bytes by device, "CPU": of the process with the most
};
// `warmup`: first steps of each process that do not count. Both throw Error as the readers do.
Measured measure(const Trace& trace, const std::string& name, size_t warmup);
Measured measure(const std::filesystem::path& trace_file, const std::string& name, size_t warmup);

enum class Metric : uint8_t { kStep, kTotal, kOps, kModules, kKernels, kPython, kCalls, kAllocated, kMemory };
// "step", "total", "ops", "modules", "kernels", "python", "calls", "allocated", "memory": in the order of Metric.
const std::vector<std::string>& metric_names();
std::optional<Metric> metric_named(std::string_view name);

struct Quantity {
  double base = 0;
  double now = 0;
  std::optional<double> p{};  // none: not tested
  bool is_minor = false;
  // now / base - 1; infinite if there was nothing before.
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
};

struct DiffTable {
  Metric metric;              // what it is a table of; kStep holds kTotal as well
  std::vector<DiffRow> rows;  // where most changed first
};

// One thing that was judged. A test case of JUnit's.
struct Check {
  std::string suite;  // "ops", "budget"
  std::string name;
  std::string text;  // "self time per step 1.000 ms -> 2.000 ms, +100.0 %, limit 10 %"
  bool is_passed = true;
};

struct Budget;  // formats/diff/budget.h

struct DiffOptions {
  std::optional<double> fail_over{};  // percent
  std::vector<Metric> metrics{};      // that it applies to; none: kStep, or kTotal where steps are not compared
  double share = 1;                   // percent
  size_t warmup = 1;
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

// `rows`: of each table. For a terminal: lines of at most 120 columns. For a job summary: GitHub's markdown. For CI:
// JUnit's XML, a suite a metric. All are valid UTF-8 without control characters, whatever the names hold.
std::string diff_text(const Diff& diff, size_t rows);
std::string diff_markdown(const Diff& diff, size_t rows);
std::string diff_junit(const Diff& diff);

}  // namespace torchprof::formats
