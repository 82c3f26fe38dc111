// What a process that is recorded does now, look after look: its steps, operators and Python functions by self time,
// GPUs and allocators. Over the last window if the capture has windows, otherwise over the last seconds. The beginning
// of -w auto is a window only when it ends: then what was counted of it is what there is of that window.
//
// Self time runs from record to record: the time between two records of a thread is that of its innermost operator and
// of its innermost Python call, and up to now that of what is open. So it needs no begin, and what hangs is seen. A
// call that had begun before the first look is known once the spool states it again, or not at all.
//
// A step is the time between the ends of two steps, by the rule of tracer/spool/step_counter.h; where the program makes
// marks ProfilerStep#N, it is that mark. Between two windows there is no step, but with
// -w auto, which takes the time of all steps.
//
// Bounded memory: kMostNames names, kMostOpen open spans a thread, kMostSteps steps. One thread. Nothing is thrown but
// for memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/live/live_names.h"
#include "formats/live/spool_tail.h"
#include "tracer/spool/step_counter.h"

namespace torchprof::formats {

// What the first look reads of the times of steps.
enum class LiveSteps : uint8_t {
  kLatest,  // those of the last seconds
  kAll,     // since the begin: 8 to 24 bytes a step, and what else was recorded when steps ended
};

struct StepSizes {  // how many steps took how long
  static constexpr std::array<double, 11> kBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};  // s
  std::array<uint64_t, kBounds.size() + 1> counts{};  // at most so long, and longer than the bound before
  int64_t sum_ns = 0;
  void add(int64_t ns);
};

struct LiveRow {
  std::string name;
  int64_t self_ns = 0;
  uint64_t calls = 0;  // that began
};

struct LiveMemory {
  int8_t device_type;  // as in Memory
  int8_t device_index;
  uint64_t bytes;
};

struct LiveView {
  std::optional<int64_t> rank;
  std::string worker;                      // "DataLoader worker 3"; empty: none
  std::vector<int64_t> step_ns;            // of the latest steps, the latest last
  uint64_t steps = 0;                      // number of the last one that ended, counted from where the recording began
  std::optional<int64_t> since_step_ns;    // since a step ended
  std::optional<double> steps_per_second;  // over the last seconds, or between two windows
  std::vector<LiveRow> operators, functions;  // by self time, as many as were asked for
  int64_t operator_ns = 0, function_ns = 0;   // the self time of all
  int64_t covered_ns = 0;                     // over so much time
  std::optional<double> gpu_busy;             // 0..1, of one GPU or the sum of several; none: no GPU was used
  std::optional<int64_t> collective_ns;       // time in collectives; none: there were none
  std::optional<int64_t> loading_ns;          // in a DataLoader's next batch; none: none was asked for
  std::optional<int64_t> since_covered_ns;    // since that time ended; none: nothing was recorded so far
  std::vector<LiveMemory> memory;             // of torch's allocators
  std::string window;                         // what was asked for; empty: the whole run
  bool has_all_steps = false;                 // also those between windows
  uint32_t window_number = 0;                 // of the latest one; 0: none so far
  bool is_window_open = false;
  bool has_stopped = false;  // capture ended because there was no more room
  double read_share = 1;     // of the records over which all of this is
  // Since the begin of the process. `has_every_step`: so are `steps` and these sizes.
  bool has_every_step = false;
  StepSizes step_sizes;
  std::optional<int64_t> ran_ns, queued_ns;  // of the thread that ends steps: on a processor, ready without one
  std::optional<int64_t> process_ran_ns;     // of all its threads on processors
  std::optional<int64_t> switching_ns;       // what opening and closing windows took
  uint64_t spool_bytes = 0, recycled_bytes = 0, lost_events = 0;
};

class LiveProcess {
 public:
  static constexpr size_t kMostNames = 1 << 16, kMostOpen = 512, kMostSteps = 256;

  LiveProcess(std::unique_ptr<SpoolTail> tail, int64_t last_ns, LiveSteps first_look = LiveSteps::kLatest)
      : tail_(std::move(tail)), names_(*tail_), last_ns_(last_ns), first_look_(first_look) {}
  // Reads what is new. `is_live`: the process still runs, so what is open lasts up to now.
  void look(bool is_live, uint64_t event_bytes);
  LiveView view(size_t rows) const;
  std::string fact(const char* key) const { return names_.fact(key); }
  const FileHeader& header() const { return tail_->header(); }

 private:
  // A key of a table: what an id is of, above the id.
  enum class Of : uint8_t { kFunction = 1, kObject, kName, kOthers };
  static constexpr uint64_t key_of(Of of, uint32_t id) { return static_cast<uint64_t>(of) << 32 | id; }
  // Totals by name: those of this look, and those of the looks before that still count.
  struct Total {
    uint64_t ticks = 0, calls = 0;
  };
  struct Table {
    std::unordered_map<uint64_t, uint32_t> slots;
    std::vector<uint64_t> keys;  // by slot
    std::vector<Total> now, kept;
    uint32_t slot(uint64_t key);
  };
  struct Frame {
    uint32_t slot;
    FunctionId function;  // none: a C call
    ObjectId object;
  };
  struct Op {
    uint32_t slot;
    StringId name;
    uint64_t key;
    uint64_t begin;  // ticks
  };
  struct Thread {
    std::vector<Frame> python;
    std::vector<Op> ops;
    uint64_t deeper = 0;  // open calls beyond kMostOpen
    uint64_t last = 0;    // ticks; 0: not known
  };
  struct Busy {
    uint32_t device;
    uint64_t begin, end;  // ns of CUPTI's clock
  };
  struct Bucket {    // what one look has added
    uint64_t ticks;  // when it ended
    std::vector<std::pair<uint32_t, Total>> operators, functions;
    int64_t busy_ns = 0, collective_ns = 0, loading_ns = 0;
    uint64_t read_bytes = 0, skipped_bytes = 0;  // of events
  };
  enum class StepSource : uint8_t { kNone, kAnnotations, kOptimizers, kProfilerCalls, kMarks };  // later ones hold

  LastOp take(const Portion& portion);
  void take_record(Thread& thread, TrackId track, const RecordView& record, uint64_t t);
  void take_gpu(const RecordView& record);
  void advance(Thread& thread, uint64_t t);
  void begin_call(Thread& thread, Frame frame, bool counts);
  void end_python(Thread& thread, FunctionId function, TrackId track, uint64_t t);
  void begin_op(Thread& thread, const OpBegin& op, uint64_t t, bool counts);
  void end_op(Thread& thread, size_t i, TrackId track, uint64_t t);
  void ended(const Op& op, TrackId track, uint64_t t);
  void take_memory(const Memory& memory, uint64_t t);
  void take_steps(const Portion& portion);
  void choose_step_source();
  void step_ended(TrackId track, uint64_t requester, uint64_t t, bool is_first = false);
  void add_step(uint64_t ticks, uint64_t t);
  void follow_windows();
  void set_clock(bool is_live);
  uint64_t last_since() const;
  void close_look();
  int64_t to_ns(uint64_t ticks) const { return static_cast<int64_t>(static_cast<double>(ticks) * ns_per_tick_); }
  uint64_t to_ticks(int64_t ns) const { return static_cast<uint64_t>(static_cast<double>(ns) / ns_per_tick_); }
  // What definitions say: it is read again only where there are new ones, since each name is some reads of the file.
  struct Known {
    uint64_t definition_bytes = 0;
    std::optional<int64_t> rank;
    std::string worker, window;
    std::unordered_map<uint64_t, std::string> names;
  };
  const Known& known() const;
  const std::string& name_of(uint64_t key) const;
  std::string read_name(uint64_t key) const;
  void add_totals(LiveView& view) const;
  std::vector<LiveRow> rows(const Table& table, size_t most, int64_t& all) const;

  std::unique_ptr<SpoolTail> tail_;
  LiveNames names_;
  mutable Known known_;
  int64_t last_ns_;  // how long a look counts where there are no windows
  LiveSteps first_look_;
  double ns_per_tick_ = 1;
  uint64_t now_ = 0;  // ticks: of this look, or of the last record of a process that has ended
  uint64_t first_record_ = 0, last_record_ = 0;  // ticks, of what was read
  uint64_t from_ = 0;                            // ticks: what came before does not count
  uint64_t until_ = 0;                           // ticks: likewise what came after; 0: no end
  uint32_t window_ = 0;                          // the number of the window that counts
  std::unordered_map<uint32_t, Thread> threads_;
  Table operators_, functions_;
  std::deque<Bucket> buckets_;
  std::vector<Busy> busy_;                      // of this look
  int64_t collective_ns_ = 0, loading_ns_ = 0;  // of this look
  bool has_collectives_ = false, has_loading_ = false, has_gpu_ = false;
  std::unordered_map<uint64_t, Op> async_;
  std::map<std::pair<int8_t, int8_t>, std::pair<int64_t, uint64_t>> memory_;  // bytes, and the time of the total
  StepSource source_ = StepSource::kNone;
  StepCounter counter_;
  std::unordered_map<ObjectId, ObjectId> steps_now_;  // of optimizers: by stepper
  uint32_t step_thread_ = 0;
  uint64_t step_end_ = 0;                            // ticks; 0: not known
  std::deque<std::pair<uint64_t, uint64_t>> steps_;  // end and length, ticks
  bool has_step_records_ = false;
  uint64_t recorded_end_ = 0;  // of the last StepEnd, ticks
  uint64_t step_count_ = 0;
  bool is_read_from_begin_ = false;  // all of its events, so far
  StepSizes step_sizes_;
  int64_t switching_ns_ = 0;
  std::optional<ProcessorTime> used_;  // the latest of the thread that came first
};

}  // namespace torchprof::formats
