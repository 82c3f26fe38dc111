// The events that a reader takes out of a trace file, whatever the file's form, and the totals by process that are made
// of them.
//
// Slices of a thread may come in any order, so all are kept until nesting can be computed: 32 bytes for a slice, 64 for
// a memory event, 40 for a kernel, copy or set. Each name is kept once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/analysis/statistics.h"
#include "formats/analysis/trace_devices.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

struct TraceFile {
  struct ProcessPart {
    std::string pid;   // as in the file: a number or a text
    uint32_t number;   // of `pid` in ReadEvents::pids
    std::string name;  // process_name; empty: none
    Statistics statistics;
  };
  std::vector<ProcessPart> processes;  // in the order of their first slice
  UnixNs start{};                      // on the file's clock
  int64_t wall_ns = 0;                 // from the first begin to the last end
  uint64_t impossible = 0;             // number of events left out because of impossible times
};

struct Interned {
  uint32_t operator()(const std::string& text) {
    const auto [it, is_new] = ids.try_emplace(text, static_cast<uint32_t>(texts.size()));
    if (is_new) texts.push_back(&it->first);
    return it->second;
  }
  std::unordered_map<std::string, uint32_t> ids;
  std::vector<const std::string*> texts;
};

struct ReadSlice {
  int64_t begin;  // ns
  int64_t duration;
  uint32_t name;
  uint32_t row : 29;
  uint32_t is_operator : 1;
  uint32_t is_annotation : 1;
  uint32_t is_backward : 1;
  uint32_t module;    // interned name of an operator's module, plus 1; 0: none
  uint32_t external;  // External id, 0: none
};
static_assert(sizeof(ReadSlice) == 32);

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

  Interned names, pids;
  std::vector<ReadSlice> slices;
  std::vector<ReadMemory> memory;
  std::unordered_map<uint32_t, ModulePlace> places;  // of modules, by name
  std::vector<RowKey> rows;
  std::vector<MadeStep> steps;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> flops;  // by pid and name
  bool is_ours = false;
  TraceDevices devices;
  std::unordered_map<uint32_t, uint32_t> device_owners;       // process of a device's row, if the file says it
  int64_t span_ns = 0;                                        // of the whole process, if the file says it
  bool has_window = false;                                    // not all of it was captured
  std::unordered_map<std::string, std::string> module_paths;  // by pid, NUL and name
  std::unordered_map<uint32_t, std::string> process_names;    // by pid

  uint64_t impossible = 0;  // number of events left out because of impossible times

  uint32_t row(const std::string& pid, const std::string& tid);
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

// The process to which each row of a device belongs, as far as the file tells.
std::unordered_map<uint32_t, uint32_t> device_owners_of(const ReadEvents& events);

// Computes nesting by time, and from it self times, totals and owners of memory. Sorts `events`. `warmup`: if set, with
// samples of steps (formats/replay/step_samples.h), without this many first steps.
TraceFile totals_of(ReadEvents& events, std::optional<size_t> warmup = {});

}  // namespace torchprof::formats
