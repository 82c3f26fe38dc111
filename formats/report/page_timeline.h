// What every thread and every stream of a GPU did in a typical step and in the slowest one, for the page
// (formats/report/page.h). Without steps: in all of the time.
//
//   typical   of the first process that has steps, the one in the middle by duration
//   slowest   of all processes; the first step of each, which loads and chooses for the others, is neither
//
// Both show all processes in the time of that step, so that one sees who waits for whom. Slices are cut at its edges.
// Python functions of torch's own are left out, and so are those that ran for the whole of the step: they say nothing
// about it.
//
// Bounded: a view has at most kMostHostSlices of threads and kMostGpuSlices of GPUs, the widest, and says how many it
// leaves out; of the processes the first kTimelineProcesses that ran in a view.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/read/events.h"
#include "formats/replay/replay.h"
#include "formats/report/report.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kMostHostSlices = 14'000, kMostGpuSlices = 6'000;
inline constexpr size_t kTimelineProcesses = 16;

// In the order in which the page's script lists them (page/timeline_data.js).
enum class TimelineKind : uint8_t {
  kModule,  // a call of an nn.Module, or a step of an optimizer
  kOperator,
  kAnnotation,
  kCommunication,  // a collective
  kPython,
  kCCall,
  kGpuCall,  // of the CUDA runtime or driver
  kPause,    // the garbage collector, or a time that another profiler took
  // of GPUs
  kKernel,
  kCopy,  // copies and sets
  kGpuCommunication,
};

struct TimelineSlice {
  int64_t begin;  // ns
  int64_t ns;
  uint32_t row;
  uint32_t name;
  uint32_t detail;  // sizes of inputs, a module's path; 0: none
  uint32_t by;      // the operator that launched it; 0: none
  TimelineKind kind;
};

// Keeps the widest slices of many.
class WidestSlices {
 public:
  explicit WidestSlices(size_t most) : most_(most) {}
  void add(const TimelineSlice& slice);
  // In no order. `left_out` grows by the number of the others.
  std::vector<TimelineSlice> take(uint64_t& left_out);

 private:
  void trim();
  size_t most_;
  int64_t least_ns_ = 0;  // narrower ones are not among the widest
  uint64_t added_ = 0;
  std::vector<TimelineSlice> slices_;
};

struct TimelineView {
  const char* kind;     // "typical", "slowest", "all"
  size_t process = 0;   // whose step it is: a place in `steps` of timeline_views()
  uint64_t step = 0;    // its number
  size_t of_steps = 0;  // how many steps it was chosen from
  int64_t begin = 0;    // ns
  int64_t end = 0;
};

// `steps`: of each process, in the order in which they are shown.
std::vector<TimelineView> timeline_views(const std::vector<std::vector<StepSpan>>& steps, int64_t begin, int64_t end);

// Rows and slices of all views. Names are small numbers from 1, by text.
class PageTimeline {
 public:
  explicit PageTimeline(std::vector<TimelineView> views);

  const std::vector<TimelineView>& views() const { return views_; }
  uint32_t name(std::string_view text);
  // `process`, `label`: for people.
  uint32_t row(const std::string& process, const std::string& label, bool is_gpu);
  // Gives a slice to each view in which some of it lies; its row and names are the caller's own numbers. They become
  // the timeline's in settle(), which asks only for those of the slices that are kept.
  // False: in no view.
  bool add(const TimelineSlice& slice);
  using Number = std::function<uint32_t(uint32_t)>;
  void settle(const Number& row, const Number& name, const Number& detail, const Number& by);
  // Adds to the processes that are not shown.
  void leave_out_process() { ++left_out_processes_; }

  // {"names":[...],"views":[{"kind","process","step","steps","begin","ns","left_out","left_out_processes",
  // "rows":[{"process","label","gpu","slices":[begin, ns, name, kind, detail, by, ...]}]}]}
  // Begins of slices count from their view's; that of a view from `start`. `who`: for people, of whom a step is.
  std::string json(int64_t start, const std::function<std::string(size_t process)>& who);

 private:
  struct Row {
    std::string process, label;
    bool is_gpu;
  };
  struct Kept {
    WidestSlices host{kMostHostSlices}, gpu{kMostGpuSlices};          // of the process that is being read
    WidestSlices all_host{kMostHostSlices}, all_gpu{kMostGpuSlices};  // of those before
    uint64_t left_out = 0;
  };
  std::string rows_json(const std::vector<TimelineSlice>& slices, int64_t begin, std::map<uint32_t, uint32_t>& used,
                        std::vector<uint32_t>& names) const;

  std::vector<TimelineView> views_;
  std::vector<Kept> kept_;  // by view
  std::vector<Row> rows_;
  Interned names_;
  uint64_t left_out_processes_ = 0;
};

// The timeline of a run, from a replay of each process that it shows, in the order in which processes are shown.
class TimelineOfRun {
 public:
  // `report` is of the same trace. Both have to live as long.
  TimelineOfRun(const Trace& trace, const Report& report);
  // Takes part in the replay of the process, which the result must not outlive; null: the process is not shown.
  std::unique_ptr<Sink> draw(const Process& process, Replay& replay);
  // As PageTimeline::json().
  std::string json();

 private:
  std::vector<const Process*> processes_;  // in the order in which they are shown
  const Report& report_;
  PageTimeline timeline_;
  std::set<uint32_t> shown_;  // places
};

// As PageTimeline::json(). `file` with timelines; `report` is of it.
std::string timeline_json(const TraceFile& file, const Report& report);

}  // namespace torchprof::formats
