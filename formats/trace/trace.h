// The trace model: all spools of a run on one clock, as processes and their tracks. Events stay in the mapped files;
// replay/replay.h reads them.
//
//  * load() does not throw for a bad spool: it is listed in Trace::unreadable, and the others still load.
//  * Every string_view points into a mapped file and lives as long as the Trace. The bytes are the program's own: they
//    may be no UTF-8 and hold control characters.
//  * A Trace is immutable, so several threads may write processes of it to files at once.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/machine_clock.h"
#include "formats/trace/native_stacks.h"
#include "formats/trace/selection.h"
#include "formats/trace/uncaptured.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/reader.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

class GpuIndex;

struct Source {  // SourceDef: what was captured, or why not
  std::string_view name;
  SourceState state;
  std::string_view detail;
};

struct Meta {  // MetaDef
  std::string key;
  std::string value;
};

struct ChildEnd {  // a child process, as its parent saw it end (endings.h)
  uint32_t pid = 0;
  int status = 0;              // of its exit; negative: the signal that killed it
  bool was_signalled = false;  // by the parent
};

struct Track {  // a thread of the process
  TrackId id;
  uint32_t tid = 0;
  std::string_view name{};                // the kernel's, the latest
  std::string_view python_name{};         // threading.Thread.name; empty: none
  std::vector<uint64_t> torch_threads{};  // numbers that torch gave it; mostly one or none
  std::vector<uint32_t> chunks{};         // indices into SpoolReader::chunks(), in time order
};

struct ObjectDetail {  // ObjectDetailDef
  ObjectId root{};
  StringId path{};
  std::vector<std::string_view> parts{};  // encoded (formats/values/object_details.h)
};

// LinesDef: the lines of a function of the program, by its instructions. Most are of libraries, and have none.
struct FunctionLines {
  struct Row {
    uint32_t instruction;  // from here on
    uint32_t line;
  };
  std::vector<Row> rows = {};                    // by instruction
  uint32_t line_at(uint32_t instruction) const;  // 0: not known
};

struct EventCounts {       // numbers of records, not of pairs
  uint64_t python = 0;     // PythonBegin and PythonFrame
  uint64_t c_calls = 0;    // CCallBegin and CCallBeginAt
  uint64_t operators = 0;  // OpBegin
  uint64_t inputs = 0;     // OpInputs
  uint64_t memory = 0;     // Memory
  uint64_t stacks = 0;     // NativeStack, AllocationStack
  uint64_t gpu_work = 0;   // GpuKernel, GpuCopy, GpuSet
  uint64_t gpu_calls = 0;  // GpuApi
  uint64_t records = 0;    // all event records, ends included
  uint64_t unknown = 0;    // of kinds that this build does not know
  EventCounts& operator+=(const EventCounts& other);
};

struct Window {         // WindowDef: if there is one, events lie in windows only
  uint32_t number = 0;  // from 1; `torchprof ctl` shows it
  uint64_t step = 0;    // number of steps that had ended before it
  UnixNs begin;
  UnixNs end;  // Process::capture_end if it was never closed
  bool closed = false;
  WindowReason reason = WindowReason::kNone;  // why -w auto opened it
};

struct StepTime {     // StepEnd: a step of the run, whether a window was open or not (-w auto)
  uint64_t step = 0;  // from 0
  UnixNs end;
  int64_t ns = 0;        // since the step before it ended; 0: not known (the first one, or a step is missing)
  bool in_full = false;  // a window was open at its end and for all of it, and has been kept
  // No window was open for any of it, or only one of the last steps, which adds next to nothing
  // (tracer/plan/last_steps.h).
  bool is_free = false;
  uint32_t window = 0;  // number of the window that was open for some of it and has been kept; 0: none
};

struct ResidentSize {
  UnixNs at;
  uint64_t bytes = 0;
};

struct UsedByStep {  // ProcessorTime: what a thread that ended a step, and its process, had used until then; ns
  UnixNs at;
  uint32_t tid = 0;
  uint64_t ran = 0;
  std::optional<uint64_t> queued{};  // ready, without a processor; none: not known
  uint64_t process_ran = 0;
};

struct UsedByMachine {  // MachineTime
  UnixNs at;
  uint64_t idle = 0;  // ns of all processors together
  uint32_t processors = 0;
  uint32_t allowed = 0;           // on which the thread that ended the step may run; 0: not known
  uint32_t operator_threads = 0;  // among which torch divided its operators; 0: not known
};

struct SampledNode {    // StackNode: a frame that was seen, with all that called it
  uint32_t caller = 0;  // in Process::sampled_nodes, a smaller one; 0: the outermost
  FunctionId function{};
  uint32_t line = 0;  // 0: not known
};

struct ThreadSample {  // Sample: what a thread did from `begin` to `end`, and where it stood
  UnixNs begin;
  UnixNs end;
  int64_t ran_ns = 0;  // at most end - begin, and so is the sum with queued_ns; the rest it waited
  int64_t queued_ns = 0;
  uint32_t tid = 0;
  uint32_t node = 0;  // in Process::sampled_nodes; 0: not known, or no Python
  uint32_t what = 0;  // it waits for, as in the record
  StringId name{};    // likewise
  SampledWait wait{};
  bool is_inner = false;  // frames further out are not known
};

struct StatedStack {  // ThreadStack: the latest of a thread, where it has no later step (python_stacks.h)
  uint32_t tid = 0;
  UnixNs at;
  uint64_t beyond = 0;                  // frames further out than those
  std::vector<StackFrame> frames = {};  // innermost first
};

struct Blind {  // time without Python calls, because a profiler of the program's own had the thread (blind.h)
  std::string_view by;
  uint64_t times = 0;
  int64_t ns = 0;  // sum over threads
};

using Losses = std::array<uint64_t, static_cast<size_t>(LossCause::kCount)>;  // by LossCause
const char* loss_text(LossCause cause);                                       // "the size limit was reached"
const char* reason_text(WindowReason reason);                                 // "slow"; empty for kNone

struct Process {
  std::filesystem::path file;  // the spool
  uint32_t pid = 0;            // two processes may share a pid: exec, or two hosts
  uint32_t parent_pid = 0;
  std::string_view host;
  std::string_view told_host;    // where the run has several hosts, `host`; otherwise empty: it goes without saying
  uint32_t machine = 0;          // in Trace::machines
  uint32_t clock_reference = 0;  // Machine::reference
  int64_t clock_error_ns = 0;    // Machine::error_ns
  std::vector<std::string_view> command;  // argv
  std::string_view forked_from;           // file name of the parent's spool; empty if not forked from a traced process
  std::string role;                       // "rank 0", "DataLoader worker 3" ... (roles.h); empty: any other program
  uint32_t place = 0;                     // in the order in which processes are shown, from 1 (roles.h)
  bool is_helper = false;                 // a worker, fork server or resource tracker, which its parent ends
  uint32_t group = 0;                     // of processes that are shown together, from 1 (roles.h); 0: of none
  std::string group_name;                 // "DataLoader workers, 3 epochs"; behind a number
  bool clean_exit = false;                // false: killed, _exit, exec, or still running
  std::optional<int> exit_status{};       // negative: a signal; none: nobody said (endings.h)
  bool was_signalled = false;             // by its parent
  UnixNs start;                           // the opening of the spool, or its first event if that is earlier
  UnixNs end;                             // the clean exit, otherwise the last known time; never before start
  UnixNs capture_end;  // `end`, or earlier if the size limit or a window ended the capture; closes open spans
  std::vector<Source> sources;
  std::vector<Meta> metadata;
  std::vector<ChildEnd> children;  // those whose ends it saw
  // When the capture ended because there was no more room (formats/trace/uncaptured.h). A hostile spool may give any
  // time.
  std::optional<UnixNs> stopped{};
  Losses lost{};
  Damage damage;
  uint64_t doubtful_chunks = 0;  // kept; their events got the time at which the chunk before began
  uint64_t recycled_bytes = 0;   // of the oldest events, dropped on purpose (--keep last)
  EventCounts counts;
  std::vector<Blind> blind;
  std::vector<Window> windows;    // by time, not overlapping; empty: the whole run
  uint64_t windows_given_up = 0;  // by -w auto, for others; without those of the last steps, which all are
  // In the order of time. With -w auto and manual of the whole run; with windows of steps or of a range at least those
  // that ended in windows, which tell where steps end and no more. Otherwise none.
  std::vector<StepTime> steps;
  std::vector<ResidentSize> resident;     // likewise: samples of what the process had in memory
  std::vector<UsedByStep> used_by_steps;  // likewise, at the ends of some steps (analysis/step_use.h)
  std::vector<UsedByMachine> used_by_machine;
  std::vector<SampledNode> sampled_nodes;  // by id; 0 is none; empty: there was no --sample
  std::vector<ThreadSample> samples;       // of each thread in the order of time
  std::vector<StatedStack> stacks;         // by tid: as a thread of ours in the process saw them last
  InterpreterDef interpreter{};            // where its stacks lie in its memory; `interpreter` 0: not known

  Selection selection;  // the part that is shown; load() selects all of it

  std::vector<Track> tracks;  // in the order in which they were defined; a track without a ThreadDef has tid 0
  // By id; entry 0 and ids that were never defined are empty (default constructed).
  std::vector<std::string_view> strings;
  std::vector<FunctionDef> functions;
  std::vector<FunctionLines> lines;  // by the function's id; those after the last one that has any are missing
  std::vector<ObjectDef> objects;
  std::vector<CallSiteDef> call_sites;
  std::vector<ObjectDetail> details;     // by the object's id
  std::shared_ptr<const GpuIndex> gpu;   // null: CUPTI delivered nothing
  std::shared_ptr<NativeStacks> native;  // null: none were taken
  std::shared_ptr<const SpoolReader> spool;
  ProcessClock clock;

  // Whether it is a function of the program of which PythonLine records tell the lines (spool/record.h).
  bool has_lines(FunctionId function) const {
    return function.value < lines.size() && !lines[function.value].rows.empty();
  }
  std::string_view string(StringId id) const {
    return id.value < strings.size() ? strings[id.value] : std::string_view{};
  }
  // The path of a module in its root, as in named_modules(); empty for the root itself, or if it is not known.
  std::string_view path(ObjectId object) const {
    return object.value < details.size() ? string(details[object.value].path) : std::string_view{};
  }
  // The outermost module that holds this one: it was called from outside any other. None: not known.
  ObjectId root(ObjectId object) const {
    return object.value < details.size() ? details[object.value].root : ObjectId{};
  }
  std::string_view meta(std::string_view key) const;  // empty if there is none
  // `steps` where their times are those of all steps of the run (-w auto); otherwise none.
  std::span<const StepTime> timed_steps() const;
  bool has_windows_of_steps() const;  // or it has none; such windows have no `Window #N` in the trace
  uint64_t lost_events() const;       // single events, lost while the capture went on
};

struct Unreadable {
  std::filesystem::path file;
  std::string reason;  // one line for people, without the file's name
};

struct Trace {
  std::vector<Process> processes;  // by start, then pid
  std::vector<Machine> machines;   // in the order of the spools
  std::vector<Unreadable> unreadable;
  UncapturedList uncaptured;
  UnixNs start;      // of the earliest process
  UnixNs end;        // of the latest
  UnixNs run_end{};  // when the command ended; 0: the caller does not know
};

using Processes = std::span<const Process>;  // a part of Trace::processes

// kDefinitions: without reading the events. Then there are no counts, and Process::end is what definitions tell.
enum class Contents { kAll, kDefinitions };

// Spools of one machine get one common rate and offset (from the widest baseline of all), so that their events line up.
// `machines`: those of an earlier load() of the same spools, with corrections of their clocks.
Trace load(const std::vector<std::filesystem::path>& spools, Contents contents = Contents::kAll,
           const std::vector<Machine>& machines = {});

// The files named *.spool in a directory, sorted. Throws Error if it cannot be listed.
std::vector<std::filesystem::path> find_spools(const std::filesystem::path& directory);

}  // namespace torchprof::formats
