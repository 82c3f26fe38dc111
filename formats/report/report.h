// The data of a report's tables, from spools or from a trace file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/advice/advice.h"
#include "formats/analysis/run_steps.h"
#include "formats/analysis/statistics.h"
#include "formats/read/events.h"
#include "formats/timeline/critical_path.h"
#include "formats/timeline/gpu_time.h"
#include "formats/timeline/launches.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// For so many processes, or groups of them, a table of their own operators is shown.
inline constexpr size_t kShownProcesses = 16;

// What is made of timelines (formats/timeline), as asked for.
struct TimelineSums {
  std::optional<GpuTimes> gpu{};
  std::optional<Launches> launches{};
  std::optional<PathSums> path{};
};
// What wants to know the steps of a process, or when its memory was at its peak: a second replay of a run makes all of
// it together.
struct SecondPassRequest {
  bool has_gpu = false;
  bool has_launches = false;
  bool has_path = false;
  bool has_advice = false;
  bool has_units = false;  // the units of processes without steps (formats/timeline/units.h)
  bool has_memory_growth = false;
  bool has_memory_categories = false;
  bool has_timelines() const { return has_gpu || has_launches || has_path || has_advice; }
};

struct ReportPart {  // one process
  std::string pid;
  std::string command;
  std::string ended;               // empty: not known
  std::optional<uint64_t> events;  // number of records
  std::string role;                // Process::role
  Statistics statistics;           // names only for the first kShownProcesses; Report::all has all names
  struct Recorder {                // what recording cost and lost
    EventCounts counts;
    uint64_t spool_bytes = 0;
    uint64_t lost = 0;  // number of events
    uint64_t recycled_bytes = 0;
    uint64_t damaged_bytes = 0;
    int64_t read_ns = 0;  // time that reading took for these tables
  };
  std::optional<Recorder> recorder{};     // only from spools
  std::optional<RunSteps> run{};          // only from spools of -w auto that have windows
  std::span<const StepTime> all_steps{};  // likewise; the trace's own
  // Process::group, of whose processes tables make one row (part_groups.h); 0: a row of its own, as for one that failed
  uint32_t group = 0;
  std::string group_name{};  // Process::group_name
  std::string host{};        // empty: not known
  TimelineSums timeline{};
  PartTimes typical{};            // of a typical step; nothing without steps
  std::optional<int64_t> rank{};  // its own, or that of whom it works for
  size_t index = 0;               // in Report::parts

  // What stands in the column `pid` of a table until name_processes() (tables.h): a process id may come twice.
  std::string key() const { return pid + '\x1f' + std::to_string(index); }
};

// What all steps of the run would have spent in a name, itself, if they were like the typical ones that were captured.
struct RunEstimate {
  double ns = 0;
  // Half of the interval in which it lies 95 times of 100, by what captured windows differ by. Errors of several
  // processes are added as they are: ranks wait for each other, so they are off in the same direction.
  double error_ns = 0;
  bool has_error = true;
};

// What of a run was not captured at all, and why: for tables without rows.
struct Captured {
  bool is_run = false;     // false: it is of a trace file, which does not say
  bool has_torch = false;  // a process has loaded it
  // Sources of the recorder (session::note_source) that no process had on, with what they said: "switched off (--ops
  // off)".
  std::map<std::string, std::string, std::less<>> without{};
};

// Refers to the trace that it is of.
struct Report {
  std::string headline;
  UnixNs start{};                 // times in tables count from here
  std::vector<ReportPart> parts;  // in the order in which processes are shown
  Statistics all{};               // their sum
  Advice advice{};                // if asked for
  // By name, over all processes whose steps were captured in part; empty: there are none.
  std::unordered_map<std::string, RunEstimate> in_run[kSampledKinds]{};
  uint64_t typical_steps = 0;                     // so many captured steps stand behind these
  std::map<uint32_t, Tallies> group_operators{};  // sums by ReportPart::group, of the first kShownProcesses rows
  ReportPart& add(ReportPart part);
  std::vector<std::string> notes{};        // notes_of()
  std::vector<std::string> gpu_remarks{};  // gpu_remarks_of()
  Captured captured{};

 private:
  size_t rows_ = 0;  // a group is one
  std::set<uint32_t> groups_{};
};

// Timelines: each process is replayed once more.
Report report_of(const Trace& trace, const StatisticsRequest& request = {}, const SecondPassRequest& second = {});
// From a trace file of any form that formats/read/read_trace.h reads. Throws Error naming the file and the cause.
// `step`: ReadRequest::step.
Report report_of(const std::filesystem::path& trace_file, const SecondPassRequest& second = {},
                 const std::string& step = {});

// What is to be known of the GPUs' times and clocks, likewise; it stands below the table of GPUs.
std::vector<std::string> gpu_remarks_of(const Trace& trace);

// From what was read of it with timelines, which stay there; `name`: of the file.
Report report_of(TraceFile& file, const std::string& name, const SecondPassRequest& second = {});

// What was not captured, lost or damaged, as lines for people. A line that several processes have comes once, with
// their ids.
std::vector<std::string> notes_of(const Trace& trace);

}  // namespace torchprof::formats
