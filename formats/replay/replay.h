// Reads the events of one process in time order and hands out finished slices: begins paired with ends, and balanced
// whatever was lost.
//
// Memory is bounded by open spans, threads, names and forward operators that wait for their backward, never by the
// number of events.
//
// One stack for each thread holds its Python frames, C calls and operators together (outermost at the bottom), so that
// the slices of every row nest exactly:
//   * A Python frame ends: frames and C calls above it have lost their ends and end with it.
//   * A range (annotation) has its recorded begin and end, always. `with record_function(...)` begins it inside the
//     frame of `__enter__` and ends it inside that of `__exit__`: these helpers (range_helpers.h) are drawn up to its
//     begin, and from its end on.
//   * What else crosses is drawn on a row of its own, which says whose it is: a range that outlives the function,
//     generator or coroutine in which it began, or ends in one that began in it; of two ranges the later one; an
//     operator that ends on another thread across what is open there; an asynchronous one (a range that NVTX starts
//     and ends by its number).
//   * Sums know nothing of rows: a range stays open on its thread, wherever it is drawn (thread_stack.h).
//   * PythonSync states the Python stack anew: open frames that are found in their old places stay, from the outermost
//     on; from the first difference on the old ones end.
//   * The first stack that is stated in a window existed before the window: it goes below the annotation that opened
//     the window from inside the frame of `__enter__`.
//   * A child that multiprocessing forked never comes back to its parent's frames: they end where its own first
//     function begins, and are left out where the stack is stated later.
//   * An end whose begin was never seen is counted and otherwise ignored.
//   * What is open when a thread ends is ended there; what is open when the process ends too, marked as unfinished.
// No slice has a negative duration, and none lies outside of [Process::start, Process::end].
//
// Forward-backward flows: formats/replay/forward_backward.h. GPUs: formats/replay/gpu.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gpu/activity.h"
#include "formats/gpu/inductor.h"
#include "formats/trace/names.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Span;  // formats/replay/thread_stack.h

// kGc: Python's garbage collector ran. kBlind: Python calls were not recorded, because a profiler of the program's own
// had the thread (trace/blind.h).
enum class SliceKind : uint8_t { kPython, kCCall, kOperator, kGc, kBlind };

struct Slice {
  SliceKind kind;
  bool finished;     // false: still open when the recording ended
  bool preexisting;  // a Python frame that was on the stack when capture began
  bool outermost;    // no other slice of this kind and name is around it on its thread (crosses it, perhaps)
  bool is_async;     // an operator that may end on another thread, and across others
  bool is_program;   // a function of the program, of which lines are known (Process::has_lines)
  uint32_t row;      // index into Replay::rows()
  NameId name;
  UnixNs begin;  // as recorded; sums are of these
  UnixNs end;
  UnixNs drawn_begin;  // where it is drawn, so that the slices of its row nest; in [begin, end]
  UnixNs drawn_end;
  // The innermost call of an nn.Module around the slice, or the slice itself. In the backward: the module of the
  // forward operator (matched as flows are), none if that was in no module's call.
  ObjectId module;
  bool is_backward;
  // A call of an nn.Module that a backward makes to compute again what it needs (activation checkpointing), or inside
  // such a call; not what is_backward there.
  bool is_recompute;
  // Self time among slices of the same kind: without those directly inside (C calls count as Python). Never negative; 0
  // for an asynchronous operator, which is around others only by chance.
  int64_t self_ns;
  int64_t calls_ns;      // the part of an operator's self time in calls of CUDA
  int64_t recompute_ns;  // of a backward operator's self time, in calls of modules that compute again (is_recompute)
  // Self time among the slices of all kinds as they are drawn; 0 on an overflow row, because what ran inside is on the
  // thread's own row.
  int64_t own_ns;
  // The `depth` spans around it on its thread, outermost first. Some may be drawn on other rows: those that are apart,
  // and all for a slice on an overflow row. Valid during the call.
  const Span* around;
  uint32_t depth;
  // The line of the program from which it came, "train.py(12): step": of the innermost function of the program around
  // it, what that executed when it began. Of an import, what imports. None: not known; the recording has no lines.
  NameId line;

  // Python and C calls
  uint64_t python_id;      // from 1, in the order of begins
  uint64_t python_parent;  // 0: none
  ObjectId object;
  ObjectId calling_module;  // for a module's call: the module that made it
  int64_t module_self_ns;   // for a module's call: without calls of other modules directly inside
  CallSiteId site;          // for a C call: where it was made; none: not known
  uint32_t generation;      // for the garbage collector
  int64_t collected;        // objects that it collected
  int64_t uncollectable;

  // operators
  OpScope scope;
  uint64_t external_id;  // from 1, in the order of begins
  uint64_t handle;
  int64_t sequence;
  uint64_t fwd_thread;
  StringId recorded;               // name and overload name (split_operator_name)
  StringId inputs;                 // encoded (formats/values/inputs.h); none: they were not recorded
  StringId collective;             // encoded (formats/values/collectives.h); none: it is no collective
  int64_t collective_sequence;     // -1: none
  NativeFrameId native;            // innermost frame of its stack; none: no stack was taken
  const InductorKernel* inductor;  // for a range around its launch, if it is known; otherwise nullptr
  const NvtxAttributes* nvtx;      // for a range of NVTX; otherwise nullptr
};

struct Flow {   // from a forward operator to its backward operator, after both slices
  uint64_t id;  // from 1
  uint32_t from_row;
  uint32_t to_row;
  UnixNs from;  // begins of the two slices
  UnixNs to;
};

struct MemoryEvent {  // an allocation, a free, or an allocation that failed
  bool is_out_of_memory;
  uint32_t row;
  UnixNs time;
  uint64_t address;
  int64_t bytes;       // negative for a free
  uint64_t allocated;  // total of the device after it, as torch counts it (the CPU's: cpu_memory.h)
  uint64_t reserved;
  int8_t device_type;  // c10::DeviceType
  int8_t device_index;
  uint64_t inherited = 0;  // part of `allocated` that is not the process's own: from its parent, by fork
  bool is_mapped = false;  // a mapped file or shared memory, which `allocated` does not count
  // What ran on the thread at that time; none if nothing did.
  NameId op{};                         // innermost open operator or annotation
  NameId outer_op{};                   // outermost operator around it, without annotations
  ObjectId module{};                   // of the innermost call of an nn.Module
  FunctionId function{};               // innermost Python function
  NativeFrameId native{};              // innermost frame of its stack; none: no stack was taken
  uint32_t line = 0;                   // line that the function was at; 0: not recorded
  const ThreadStack* stack = nullptr;  // what was open; valid during the call
  const Window* window = nullptr;      // in which it lies; null: the whole run is recorded
};
inline uint32_t window_of(const MemoryEvent& m) { return m.window == nullptr ? 0 : m.window->number; }

struct Mark {  // a mark of NVTX, or the begin of a window that is not one of steps
  uint32_t row;
  UnixNs time;
  NameId name;
  NvtxAttributes attributes;
  bool is_window = false;  // "Window #N"
};

struct StepMark {  // a `ProfilerStep#N` made here, not by the program (step_tracker.h)
  uint64_t number;
  uint32_t row;
  UnixNs begin;
  UnixNs end;
  uint64_t external_id;
  NameId ended_by;  // none: the rest after the last step
};

struct Row {  // a row of the trace: a thread's own, or an overflow row for what does not nest there
  uint32_t tid;
  uint32_t sort_tid;             // the thread that it belongs to
  std::string_view thread_name;  // the kernel's
  std::string_view python_name;  // threading's; empty: none
  bool is_overflow;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void slice(const Slice& slice) = 0;
  virtual void flow(const Flow& flow) { (void)flow; }
  virtual void step(const StepMark& mark) { (void)mark; }
  virtual void memory(const MemoryEvent& event) { (void)event; }
  // Samples of what Python allocates and frees, device kPythonMemory: estimates, which torch knows nothing of.
  virtual void python_memory(const MemoryEvent& event) { (void)event; }
  // A call comes first, then its work; work without a call comes at the end. The pointers in a call are valid until
  // then.
  virtual void gpu_call(const GpuCall& call) { (void)call; }
  virtual void gpu_activity(const GpuActivity& activity) { (void)activity; }
  virtual void mark(const Mark& mark) { (void)mark; }
  // All has been handed out, and the rows are complete.
  virtual void end() {}
};

// A question that takes part in a replay, which others may share.
template <class Result>
class Analysis {
 public:
  virtual ~Analysis() = default;
  // To be called once, when the replay has run.
  virtual Result finish() = 0;
};

struct ReplayStats {
  uint64_t unmatched_ends = 0;  // ends whose begin was never recorded
  uint64_t lost_ends = 0;       // spans that were ended with one below them
  uint64_t unfinished = 0;      // spans that were open when the recording ended
  uint64_t python_ids = 0;      // number of ids given
  uint64_t external_ids = 0;
  uint64_t flows = 0;
  uint64_t cut_calls = 0;  // calls of CUDA that were cut (gpu.h)
  int64_t most_cut_ns = 0;
};

class Replay {
 public:
  explicit Replay(const Process& process);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Another sink that run() gives all to. Sinks know nothing of each other; they may use names() and rows() meanwhile.
  void add(Sink& sink);
  // May be called once.
  ReplayStats run();
  ReplayStats run(Sink& sink) {
    add(sink);
    return run();
  }

  Names& names();
  // First the threads in the order of Process::tracks, then those that only CUPTI knows. run() adds overflow rows.
  const std::vector<Row>& rows() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<Sink*> sinks_;
};

}  // namespace torchprof::formats
