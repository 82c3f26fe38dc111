// Walks the events of one process in time order and hands out finished slices: begins paired with ends, balanced
// whatever was lost.
//
// Memory is bounded by open spans, threads, names and forward operators that wait for their backward, never by events.
//
// One stack per thread holds Python frames, C calls and operators together, so that every row of a trace nests exactly:
//   * A Python frame ends: frames and C calls above it lost their end and end with it. Operators above it stay, and
//   begin
//     where it ends: `with record_function(...)` begins inside the frame of `__enter__`, and what is shown is the body
//     of the block.
//   * An operator ends below frames that are still open (it ends inside the frame of `__exit__`): its end is the begin
//   of
//     the lowest of them.
//   * An operator ends below operators that are still open (crossed annotations): the later ones move to a row of their
//     own with their exact times, as do operators that end on another thread across what is open there. Of an
//     asynchronous one (a range that NVTX starts and ends by its number) it is itself that moves.
//   * A Python stack that is stated anew (PythonSync) keeps the frames that it finds open in their places, from the
//   outermost on; what differs from there on ends.
//   * The first stack that is stated in a window was there before it: it lies below the annotation that opened the
//     window, inside the frame of `__enter__`.
//   * An end whose begin was never seen is counted and otherwise ignored.
//   * What is open at the end of a thread ends there; what is open at the end of the process too, marked unfinished.
// No slice has a negative duration, none lies outside of [Process::start, Process::end].
//
// Forward-backward flows: formats/replay/forward_backward.h. GPUs: formats/replay/gpu.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gpu/activity.h"
#include "formats/trace/names.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Span;  // formats/replay/thread_stack.h

// kGc: Python's garbage collector runs. kBlind: the program's own profiler had the thread, its calls were not recorded.
enum class SliceKind : uint8_t { kPython, kCCall, kOperator, kGc, kBlind };

struct Slice {
  SliceKind kind;
  bool finished;     // false: still open when the recording ended
  bool preexisting;  // Python: was on the stack when capture began
  bool outermost;    // no slice of this kind and name is open below it on its thread
  uint32_t row;      // index into Replay::rows()
  NameId name;
  UnixNs begin;
  UnixNs end;
  // The innermost call of an nn.Module around it, its own included; in the backward: the module that called the forward
  // operator (matched as flows are), none where no call of a module did.
  ObjectId module;
  bool is_backward;
  int64_t
      self_ns;  // without slices of the same kind directly inside (C calls count as Python); never negative, and 0 of
  // an asynchronous operator
  // Without slices of any kind directly inside; 0 on an overflow row: what ran meanwhile is on the thread's own.
  int64_t own_ns;
  // The slices that are open around it on its row, outermost first; none on an overflow row. During the call.
  const Span* around;
  uint32_t depth;  // how many

  // Python and C calls
  uint64_t python_id;      // from 1, in the order of begins
  uint64_t python_parent;  // 0: none
  ObjectId object;
  ObjectId calling_module;  // of a module's call: the module in whose call it was made
  int64_t module_self_ns;   // of a module's call: without calls of other modules directly inside
  CallSiteId site;          // where a C function was called; none: not known
  uint32_t generation;      // of the garbage collector
  int64_t collected;        // objects
  int64_t uncollectable;

  // operators
  OpScope scope;
  uint64_t external_id;  // from 1, in the order of begins
  uint64_t handle;
  int64_t sequence;
  uint64_t fwd_thread;
  StringId recorded;            // name and overload name (split_operator_name)
  StringId inputs;              // encoded (formats/values/inputs.h); none: they were not recorded
  StringId collective;          // encoded (formats/values/collectives.h); none: it is no collective
  int64_t collective_sequence;  // -1: none
  NativeFrameId native;         // innermost frame of the stack that began it; none: it was not taken
  const NvtxAttributes* nvtx;   // of a range of NVTX; nullptr: it is none
};

struct Flow {   // from a forward operator to its backward; both slices have been handed out
  uint64_t id;  // from 1
  uint32_t from_row;
  uint32_t to_row;
  UnixNs from;  // begins of the slices
  UnixNs to;
};

struct MemoryEvent {  // an allocation or a free, or one that failed
  bool is_out_of_memory;
  uint32_t row;
  UnixNs time;
  uint64_t address;
  int64_t bytes;       // negative: freed
  uint64_t allocated;  // of the device, after it
  uint64_t reserved;
  int8_t device_type;  // c10::DeviceType
  int8_t device_index;
  bool is_mapped = false;  // memory of a file or shared between processes, which torch does not count into `allocated`
  // What ran on the thread then; none where there is none.
  NameId op{};                         // innermost open operator or annotation
  NameId outer_op{};                   // outermost operator below it, annotations apart
  ObjectId module{};                   // of the innermost call of an nn.Module
  FunctionId function{};               // innermost Python function
  NativeFrameId native{};              // innermost frame of the stack that allocated it; none: it was not taken
  uint32_t line = 0;                   // that it was executing; 0: not recorded
  const ThreadStack* stack = nullptr;  // what was open; during the call
};

struct Mark {  // a moment that the program told NVTX of, or the begin of a window that is not one of steps
  uint32_t row;
  UnixNs time;
  NameId name;
  NvtxAttributes attributes;
  bool is_window = false;  // "Window #N"
};

struct StepMark {  // a `ProfilerStep#N` that the program did not make itself: formats/replay/step_tracker.h
  uint64_t number;
  uint32_t row;
  UnixNs begin;
  UnixNs end;
  uint64_t external_id;
  NameId ended_by;  // none: what came after the last step
};

struct Row {  // a line of the trace: a thread, or what would not nest on its line
  uint32_t tid;
  uint32_t sort_tid;             // the thread that it belongs to
  std::string_view thread_name;  // as the kernel has it
  std::string_view python_name;  // as threading has it; empty: none
  bool is_overflow;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void slice(const Slice& slice) = 0;
  virtual void flow(const Flow& flow) { (void)flow; }
  virtual void step(const StepMark& mark) { (void)mark; }
  virtual void memory(const MemoryEvent& event) { (void)event; }
  // The call first, then its work; what has no call at the end. What the call points to lives as long as that.
  virtual void gpu_call(const GpuCall& call) { (void)call; }
  virtual void gpu_activity(const GpuActivity& activity) { (void)activity; }
  virtual void mark(const Mark& mark) { (void)mark; }
};

struct ReplayStats {
  uint64_t unmatched_ends = 0;  // their begin was never recorded
  uint64_t lost_ends = 0;       // begins that ended because something below them did
  uint64_t unfinished = 0;      // open when the recording ended
  uint64_t python_ids = 0;      // how many were given
  uint64_t external_ids = 0;
  uint64_t flows = 0;
  uint64_t cut_calls = 0;  // of CUDA: formats/replay/gpu.h
  int64_t most_cut_ns = 0;
};

class Replay {
 public:
  explicit Replay(const Process& process);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Once. The sink may ask for names() and rows() meanwhile.
  ReplayStats run(Sink& sink);

  Names& names();
  // The threads first, in the order of Process::tracks, then those that only CUPTI knows; overflow rows are added
  // during run().
  const std::vector<Row>& rows() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torchprof::formats
