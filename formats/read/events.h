// The events that a reader takes out of a trace file, whatever the file's form, and the totals by process that are made
// of them.
//
// Slices of a thread may come in any order, so all are kept until nesting can be computed: 40 bytes for a slice, 40 for
// a call, 64 for a memory event, 80 for a kernel, copy or set. Each name is kept once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/analysis/statistics.h"
#include "formats/io/sum.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

struct TraceFile {
  struct ProcessPart {
    std::string pid;   // as in the file: a number or a text
    std::string name;  // process_name; empty: none
    std::string role;  // "rank 0", "DataLoader worker 3"; empty: not known
    Statistics statistics;
    Timeline timeline{};  // if asked for
  };
  std::vector<ProcessPart> processes;  // in the order of their first slice
  UnixNs start{};                      // on the file's clock
  int64_t wall_ns = 0;                 // from the first begin to the last end, of devices, too
  uint64_t impossible = 0;             // number of events left out because of impossible times
  bool has_others = false;             // it has more than kMostProcesses: the rest are one
  uint64_t unread = 0;                 // number of slices of categories that no reader knows
  std::string unread_category;         // of the first of them
  std::string step{};                  // ReadRequest::step
  bool is_unfinished = false;          // it ends without its end: whoever wrote it was stopped, or is not ready
};

// What is known of a process takes some 10 KB.
inline constexpr size_t kMostProcesses = 10'000;

struct Interned {
  uint32_t operator()(const std::string& text) {
    const bool is_other = texts.size() >= most && !ids.contains(text);
    has_others = has_others || is_other;
    const auto [it, is_new] = ids.try_emplace(is_other ? "others" : text, static_cast<uint32_t>(texts.size()));
    if (is_new) texts.push_back(&it->first);
    return it->second;
  }
  size_t most = SIZE_MAX;   // different texts; those beyond are one
  bool has_others = false;  // there were some
  std::unordered_map<std::string, uint32_t> ids{};
  std::vector<const std::string*> texts{};
};

struct ReadSlice {
  int64_t begin;  // ns
  int64_t duration;
  uint32_t name;
  uint32_t row : 27;
  uint32_t is_operator : 1;
  uint32_t is_annotation : 1;
  uint32_t is_backward : 1;
  uint32_t is_async : 1;      // an operator that nests with nothing
  uint32_t is_apart : 1 = 0;  // an annotation that does not nest either, so that it is drawn elsewhere; from draw() on
  uint32_t module;            // interned name of an operator's module, plus 1; 0: none
  uint32_t external;      // of an operator: External id; of a Python call: index into ReadEvents::cuts, plus 1; 0: none
  uint32_t inputs = 0;    // of an operator: index into ReadEvents::inputs, plus 1; 0: not known
  uint32_t sequence = 0;  // of an operator: autograd's number plus 1; 0: none

  int64_t end() const { return sum(begin, duration); }
};
static_assert(sizeof(ReadSlice) == 40);

struct ReadCut {  // by so much (ns) a call is drawn shorter than it was (Slice::drawn_begin)
  int64_t at_begin = 0;
  int64_t at_end = 0;
};

struct ReadCall {  // of CUDA, HIP or another library of a device's maker
  int64_t begin;   // ns
  int64_t end;
  uint32_t name;
  uint32_t row;
  uint32_t correlation;  // 0: none
  int64_t work_ns = 0;   // of the work that it launched; from join_launches() on
};

struct ReadWork {  // a kernel, copy or set on a device
  int64_t begin;   // ns
  int64_t duration;
  uint32_t name;                // interned, like pid
  uint32_t pid;                 // that of the device's row
  uint32_t process = kUnknown;  // interned pid of the program; from join_launches() on that of some process
  uint32_t correlation = 0;     // 0: none
  uint32_t external = 0;        // as in ReadSlice
  uint32_t device = kUnknown;   // from join_launches() on that of some device
  uint32_t stream = 0;
  float blocks_per_sm = 0;
  float occupancy = 0;  // 0 to 1
  bool is_kernel = true;
  bool is_set = false;  // not a copy
  uint64_t bytes = 0;   // of copies and sets; 0: not known
  // How many calls and slices stood before it in the file: what the process that launched it has is near.
  uint32_t calls_before = 0;
  uint32_t slices_before = 0;

  static constexpr uint32_t kUnknown = UINT32_MAX;
  int64_t end() const { return sum(begin, duration); }
};

struct ReadWait {  // what CUPTI says that a device or a call waits for
  int64_t begin;   // ns
  int64_t end;
  uint32_t pid;   // that of the device's row
  uint32_t kind;  // interned: "Stream Wait Event" ...
  uint32_t device;
  uint32_t stream;
  uint32_t correlation;
  uint32_t recorded;   // correlation of the record of the event; 0: not known
  uint32_t of_stream;  // on which the event was recorded; UINT32_MAX: not known
};

struct ReadCollective {  // record_param_comms, on the thread that asked for it
  int64_t begin;         // ns
  int64_t end;
  uint32_t row;
  uint32_t name;         // these are interned: "allreduce"
  uint32_t group;        // its name
  uint32_t description;  // for people; the empty text: none
  uint32_t ranks;        // "0, 1"
  uint64_t bytes;        // of the input or the output, whichever is larger
};

struct ReadMemory {
  MemoryChange change;  // its owner: interned names plus 1; `place` from the event itself, 0: none
  uint32_t row = 0;
};

struct ModulePlace {
  std::string path;
  std::string root;
};

struct MadeStep {  // a mark that torchprof had made (formats/replay/step_tracker.h)
  uint64_t number;
  int64_t begin;  // ns
  int64_t end;
  uint32_t pid;  // interned
  std::string ended_by;
};

struct ReadEvents {
  struct RowKey {
    uint32_t pid;  // interned
    std::string tid;
  };

  Interned names;
  Interned pids{.most = kMostProcesses};
  // What operators were given (kineto_inputs.h). Of those beyond the most it is not known.
  Interned inputs{.most = kMostInputs};
  std::vector<ReadSlice> slices;  // as drawn; from totals_of() on as recorded
  std::vector<ReadCut> cuts;
  std::vector<ReadCall> calls;
  std::vector<ReadWait> waits;
  std::vector<ReadCollective> collectives;
  std::vector<ReadMemory> memory;
  std::unordered_map<uint32_t, ModulePlace> places;  // of modules, by name
  std::vector<RowKey> rows;
  std::vector<uint32_t> thread_rows;  // by row: that of its thread; from totals_of() on
  std::vector<MadeStep> steps;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> flops;  // by pid and name
  bool is_ours = false;
  std::vector<ReadWork> work;
  std::unordered_map<uint32_t, std::string> device_labels;  // "GPU 0, rank 1", by the pid of a device's row
  std::map<uint32_t, std::string> device_names;             // by number
  std::unordered_map<uint32_t, int64_t> launched;  // ns of the work that a slice launched, by `external`; for operators
  int64_t span_ns = 0;                             // of the whole process, if the file says it
  std::optional<int64_t> rank;                     // in a file of one process
  bool has_window = false;                         // not all of it was captured
  std::unordered_map<std::string, std::string> module_paths;  // by pid, NUL and name
  std::unordered_map<uint32_t, std::string> process_names;    // by pid
  std::unordered_map<uint32_t, std::string> row_names;        // thread_name, by row

  uint64_t impossible = 0;      // number of events left out because of impossible times
  uint64_t unread = 0;          // as in TraceFile
  std::string unread_category;  // likewise
  bool is_unfinished = false;   // likewise

  uint32_t row(const std::string& pid, const std::string& tid);
  // Keeps a cut, if it is one. Returns what ReadSlice::external has of it.
  uint32_t cut(const ReadCut& cut) {
    if (cut.at_begin == 0 && cut.at_end == 0) return 0;
    cuts.push_back(cut);
    return static_cast<uint32_t>(cuts.size());
  }
  ReadCut cut_of(const ReadSlice& s) const {
    return s.is_operator || s.external == 0 ? ReadCut{} : cuts[s.external - 1];
  }
  // "4711 (python3)", without what we and Kineto write around it; the tid if the row has no name.
  std::string thread(uint32_t row) const;
  // Whether it holds, in a trace of ours, what does not nest with the others of its thread.
  bool is_overflow(uint32_t row) const;
  // Whether an event with these times is possible and taken; counts it if not.
  bool takes(int64_t begin, int64_t end) {
    impossible += !is_possible(begin, end);
    return is_possible(begin, end);
  }

 private:
  std::unordered_map<std::string, uint32_t> row_ids_;
  std::string last_pid_;
  uint32_t last_row_ = ~uint32_t{0};
};

struct ReadRequest {
  // With samples of steps (formats/replay/step_samples.h), without this many first steps.
  std::optional<size_t> warmup{};
  std::string step{};          // what a step is (formats/timeline/units.h); empty: found
  bool has_timelines = false;  // and parts of steps, threads and collectives, which are made of them
  bool has_inputs = true;      // of operators, in timelines: advice alone needs them
};

// Computes nesting by time, and from it self times, totals and owners of memory. Sorts `events`.
TraceFile totals_of(ReadEvents& events, const ReadRequest& request = {});

}  // namespace torchprof::formats
