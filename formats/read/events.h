// What a reader of a trace file takes out of it, whatever the file's form, and what becomes of it: totals by process.
//
// Nothing promises that the slices of a thread come in an order from which nesting could be told, so all are kept: 32
// bytes of a slice, 64 of a memory event, 40 of a kernel, copy or set. Names are kept once.
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
    std::string pid;   // as the file has it: a number or a text
    std::string name;  // process_name, empty if there is none
    Statistics statistics;
  };
  std::vector<ProcessPart> processes;  // in the order of their first slice
  UnixNs start{};                      // of the file's clock
  int64_t wall_ns = 0;                 // from the first begin to the last end
  uint64_t impossible = 0;             // events that were left out: no program has such times
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
  uint32_t module;    // the name of an operator's, interned, and 1; 0: none
  uint32_t external;  // External id, 0: none
};
static_assert(sizeof(ReadSlice) == 32);

struct ReadMemory {
  MemoryChange change;  // owner.place: as the event says, 0 if it does not; numbers are those of names and 1
  uint32_t row = 0;
};

struct ModulePlace {
  std::string path;
  std::string root;
};

struct MadeStep {  // one that was made here: formats/replay/step_tracker.h
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
  std::unordered_map<uint32_t, uint32_t> device_owners;       // process of a device's row, where the file says it
  int64_t span_ns = 0;                                        // of the whole capture, if the file says it
  std::unordered_map<std::string, std::string> module_paths;  // by pid, 0 and name
  std::unordered_map<uint32_t, std::string> process_names;    // by pid

  uint64_t impossible = 0;  // events that were left out for their times

  uint32_t row(const std::string& pid, const std::string& tid);
  // Whether an event with these times is taken. It is counted if not.
  bool takes(int64_t begin, int64_t end) {
    impossible += !is_possible(begin, end);
    return is_possible(begin, end);
  }

 private:
  std::unordered_map<std::string, uint32_t> row_ids_;
  std::string last_pid_;
  uint32_t last_row_ = ~uint32_t{0};
};

// Self times, totals and owners of memory from nesting by time. `events` is sorted on the way.
// `warmup`: with samples of steps (formats/replay/step_samples.h) but of this many first ones.
TraceFile totals_of(ReadEvents& events, std::optional<size_t> warmup = {});

}  // namespace torchprof::formats
