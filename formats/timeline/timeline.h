// What ran in one process, as spans in memory: the threads of the program with what they did, the work of its GPUs, and
// which call launched what. It has the same form whether it comes from spools (build.h) or from a trace file
// (formats/read), so that advice, the critical path and statistics of launches are computed once for all.
//
//   span   a Python function, a module's or an optimizer's call, a C call, an operator, an annotation, a call of CUDA,
//          or Python's garbage collection. Those of a row nest, are sorted by begin, and each comes after the span
//          around it
//   work   a kernel, a copy or a set on a device
//   wait   what a device or the program waited for, as CUPTI says it (cuda_sync); only where it was recorded
//
// Times are ns on the trace's clock, in [kEarliest, kLatest] (formats/io/sum.h), and no end is before its begin.
//
// Memory: 48 bytes for each span, 72 for each piece of work. So that a run of any length fits, a timeline holds chosen
// steps (TimelineSteps), and of a process without steps what begins before there are kMostSpans.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/analysis/step_use.h"
#include "formats/replay/step_samples.h"
#include "formats/trace/name_role.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {

inline constexpr size_t kMostSpans = 4'000'000;
inline constexpr size_t kDeepestSpan = 4096;  // spans around one; what is deeper is left out: many walks go outwards
inline constexpr uint32_t kNoSpan = UINT32_MAX;
// Different inputs that operators were given; those of more are not known. Of the last quarter, where a program gives
// its operators ever other numbers, only types and sizes are known. Of each list that many elements are kept.
inline constexpr size_t kMostInputs = 16'384;
inline constexpr size_t kMostExactInputs = kMostInputs / 4 * 3;
inline constexpr size_t kMostListed = 128;

enum class SpanKind : uint8_t {
  kPython,
  kModule,  // nn.Module or optimizer
  kCCall,
  kOperator,
  kAnnotation,
  kCall,  // of CUDA
  kGc,
};

struct TimelineSpan {
  int64_t begin;
  int64_t end;
  uint32_t name;  // Timeline::text()
  uint32_t parent = kNoSpan;
  // The line of the program from which it came, as a name; 0: not known, and of functions of the program. These have a
  // name of their own, and what called them.
  uint32_t place = 0;
  uint32_t called_from = 0;
  uint32_t correlation = 0;  // of a call of CUDA; 0: none
  uint32_t inputs = 0;       // of an operator: Timeline::inputs(); 0: not known
  uint32_t sequence = 0;     // of an operator: autograd's number plus 1, the same in its backward; 0: it has none
  SpanKind kind;
  bool is_backward = false;  // of an operator
  bool is_async = false;     // an operator that is around others only by chance

  int64_t ns() const { return end - begin; }
};

struct TimelineRow {   // a thread, or a row for spans that do not nest on it
  std::string thread;  // "4711 (pt_main_thread)", for people
  bool is_overflow = false;
  std::vector<TimelineSpan> spans{};
};

enum class WorkKind : uint8_t { kKernel, kCopy, kSet };

struct TimelineWork {
  int64_t begin;
  int64_t end;
  uint64_t bytes = 0;  // of copies and sets; 0: not known
  uint32_t name;
  uint32_t device = 0;
  uint32_t stream = 0;
  uint32_t correlation = 0;  // 0: none
  uint32_t row = kNoSpan;    // of the call that launched it; kNoSpan: not known
  uint32_t call = kNoSpan;   // its index in the row
  float blocks_per_sm = 0;
  float occupancy = 0;  // 0 to 1
  WorkKind kind = WorkKind::kKernel;

  int64_t ns() const { return end - begin; }
};

enum class WaitKind : uint8_t { kOther, kEvent, kStreamEvent, kStream, kContext };

struct TimelineWait {
  int64_t begin;
  int64_t end;
  uint32_t device = 0;
  uint32_t stream = 0;              // that waits; of kStream, whose end the program waits for
  uint32_t correlation = 0;         // of the call that waits
  uint32_t recorded = 0;            // correlation of the cudaEventRecord that it waits for; 0: not known
  uint32_t of_stream = UINT32_MAX;  // on which the event was recorded; UINT32_MAX: not known
  WaitKind kind = WaitKind::kOther;
};

// A block of the CPU's memory so large that glibc maps it anew each time: all its pages are cleared when they are
// touched (DEFAULT_MMAP_THRESHOLD_MAX in malloc/malloc.c; smaller ones may come from memory that was freed).
inline constexpr int64_t kMappedAnew = int64_t{32} << 20;
struct TimelineAllocation {
  int64_t time;
  int64_t bytes;
  uint32_t place;  // the line that ran, as a name; 0: not known
};
// Such a block is given back to the kernel behind that time, by the thread of the row.
struct TimelineFree {
  int64_t time;
  int64_t bytes;
  uint32_t row;
};

// The outermost imports. In files of others: the spans of importlib.
struct ImportTime {
  int64_t ns = 0;        // of all of them
  int64_t until = 0;     // when those with which the program begins have ended; Timeline::begin: there are none
  int64_t first_ns = 0;  // of those that end by then
  std::string most{};    // "import torch": that of these which takes most of it; empty: none
};

// What the program switched on, or made, wherever that was in the run: by calls of torch's functions.
enum class StateKind : uint8_t {
  kProfiler,   // torch.profiler or torch.autograd.profiler records
  kAnomalies,  // torch.autograd.set_detect_anomaly() or detect_anomaly() was called
  kOptimizer,  // an optimizer was made: `what` are the torch/optim files of its class and the classes below it
  kChild,      // the program started another process; not what torch starts
};
struct TimelineState {
  StateKind kind;
  int64_t begin;
  int64_t end;         // of a profiler; others last until the end
  uint32_t place = 0;  // the program's line, as a name; 0: not known
  std::string what{};  // "adamw.py adam.py "
};
inline constexpr size_t kMostStates = 10'000;

// A frame that samples have seen, with all that called it: `caller`, its caller, and so on are one stack.
struct TimelineFrame {
  uint32_t caller = 0;  // in Timeline::frames, a smaller one; 0: the outermost
  uint32_t name = 0;    // "path(line): name", at the line that ran
};

// What a thread did for some time (--sample): at `frame` when it was last seen in it.
struct TimelineSample {
  int64_t begin;
  int64_t end;
  int64_t ran_ns;         // on a processor
  int64_t queued_ns;      // ready to run, without one
  uint32_t tid;           // gettid()
  uint32_t row;           // of the thread; kNoSpan: nothing else is known of it
  uint32_t frame;         // 0: not known, or no Python
  uint32_t what = 0;      // it waits for: SampledWait says what the number is (tracer/spool/record.h)
  uint32_t what_name;     // a file's path, "socket", "pipe", as a name; 0: not known
  SampledWait wait;       // what it did in the rest
  bool is_inner = false;  // frames further out are not known

  int64_t ns() const { return end - begin; }
  int64_t waited_ns() const { return ns() - ran_ns - queued_ns; }
};
inline constexpr size_t kMostThreadSamples = 2'000'000;

struct Timeline {
  std::vector<TimelineRow> rows;
  std::vector<TimelineWork> work;                // sorted by begin
  std::vector<TimelineWait> waits;               // sorted by begin
  std::vector<TimelineAllocation> large_blocks;  // of kMappedAnew bytes or more, in any order
  std::vector<TimelineFree> large_frees;         // likewise; sorted by time
  std::vector<TimelineState> states;             // in the order of their begins; as far as calls were recorded
  std::vector<StepSpan> steps;  // that it holds; sorted by begin, without overlaps; empty: the process has none
  std::string unit;           // what a step is, where it is no step of training: "a call of GPT" (units.h); else empty
  bool unit_is_part = false;  // one of several that are what a step is for people (units.h)
  ImportTime imports;         // of a process without steps of training
  std::vector<StepUse> step_use;        // of the whole run; by end; empty: not known
  std::vector<MachineUse> machine_use;  // likewise
  std::vector<TimelineFrame> frames;    // that are seen in samples; the first is none
  std::vector<TimelineSample> samples;  // of the whole run, also between windows and steps; by end; at most
                                        // kMostThreadSamples, the first ones
  std::map<uint32_t, std::string> device_names;
  int64_t begin = 0;  // of the whole capture
  int64_t end = 0;
  bool is_cut = false;    // something was left out, because there was too much
  uint64_t too_deep = 0;  // spans left out by finish(), because they lie in more than kDeepestSpan others

  std::string_view text(uint32_t name) const { return texts_[name]; }
  NameRole role(uint32_t name) const { return roles_[name]; }
  size_t names() const { return texts_.size(); }  // names are dense from 0, which is the empty text
  uint32_t name(std::string_view text);

  // What an operator was given, in the order of its arguments; empty: not known.
  const std::vector<Input>& inputs(uint32_t inputs) const { return inputs_[inputs]; }
  uint32_t add_inputs(std::vector<Input> inputs);  // its number; 0: there are too many

  const TimelineSpan& span(uint32_t row, uint32_t index) const { return rows[row].spans[index]; }
  // The call that launched it; null: not known.
  const TimelineSpan* call_of(const TimelineWork& w) const {
    return w.row == kNoSpan ? nullptr : &rows[w.row].spans[w.call];
  }
  // The program's own line for a span: its own, or that of the nearest span around it that has one; else the innermost
  // function of the program, of torch, or the module around it. Empty: not known.
  std::string_view place_of(uint32_t row, uint32_t index) const;
  // Whether it is the name of a function of the program: by what was set, or else by its text (formats/trace/names.h).
  bool is_program(uint32_t name) const;
  void set_program(uint32_t name, bool is_program);
  // The whole path of the file of a function of the program; empty: not known.
  std::string_view file_of(std::string_view name) const;
  // All such paths, each with the name of a function in it.
  std::map<std::string_view, std::string_view> program_files() const;
  void set_file(uint32_t name, std::string_view file) { files_.try_emplace(name, file); }
  // Likewise, whether it is one of an installed package: by its whole path, where that is known.
  bool is_installed(uint32_t name) const;
  void set_installed(uint32_t name) { installed_.insert(name); }
  // Whether it is the name of an optimizer that has replaced one that was gone, with the same parameters.
  bool is_replacing(uint32_t name) const { return replacing_.contains(name); }
  bool has_replacing() const { return !replacing_.empty(); }
  void set_replacing(uint32_t name) { replacing_.insert(name); }
  // "Handler.do_POST"; empty: not known.
  std::string_view qualname(uint32_t name) const;
  void set_qualname(uint32_t name, std::string_view qualname) { qualnames_.try_emplace(name, qualname); }

  // Sorts all, finds parents and the calls of works. After the last span was added.
  void finish();
  // Finds the calls of works anew, after spans were moved.
  void link_calls();

 private:
  std::deque<std::string> texts_{std::string()};
  std::vector<NameRole> roles_{NameRole::kPlain};  // by name
  std::unordered_map<std::string_view, uint32_t> by_text_{{std::string_view(), 0}};
  std::unordered_map<uint32_t, std::string> files_;  // by name
  std::vector<std::vector<Input>> inputs_{1};
  std::unordered_map<std::string, uint32_t> by_shape_;  // of inputs_ behind kMostExactInputs
  mutable std::vector<int8_t> is_program_;              // by name: 1 yes, -1 no, 0 not looked up yet
  std::unordered_set<uint32_t> installed_;
  std::unordered_set<uint32_t> replacing_;  // likewise
  std::unordered_map<uint32_t, std::string> qualnames_;
};

// Of a process's steps those that its timeline holds: all but the first, which loads and chooses for the others, or if
// they would have more than kMostSpans spans, every nth. `spans`: how many the whole process has.
std::vector<StepSpan> chosen_steps(std::span<const StepSpan> steps, uint64_t spans);

}  // namespace torchprof::formats
