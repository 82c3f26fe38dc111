// What is missing because there was no room: processes whose capture ended before they did, and processes of which
// nothing was recorded.
//
// Times of a process count from the opening of its spool. A hostile spool or list can give wrong times, but nothing
// worse.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tracer/spool/clock.h"
#include "tracer/spool/layout.h"

namespace torchprof::formats {

struct Process;
struct Trace;

struct CutShort {
  int64_t ns = 0;                  // the capture ended then
  std::optional<int64_t> of_ns{};  // the process lived so long; none: not known
  bool is_at_most = false;         // of_ns is the end of the run: the process did not end in an orderly way
  bool has_events = false;         // false: nothing of it was recorded
  LossCause cause{};
};

// None: there was room to capture it to its end. `run_end`: when the command ended; 0: not known.
std::optional<CutShort> cut_short(const Process& process, UnixNs run_end);
// "captured until 3.210 s of 12.400 s", "captured until 3.210 s", "never captured"
std::string text_of(const CutShort& cut);

// ", captured until 3.210 s of 12.400 s" for the process's name in a trace; empty if it was captured to its end.
std::string cut_label(const Process& process);

struct Uncaptured {  // a line of RUN/spool/uncaptured (tracer/spool/layout.h)
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  UnixNs time{};
  LossCause cause{};
  int error = 0;  // errno
  bool is_forked = false;
  std::string command;  // as in the list: any bytes

  std::string reason() const;  // "no spool could be made (No space left on device)"
};

struct UncapturedList {
  std::vector<Uncaptured> processes;
  uint64_t more = 0;  // processes for which the list had no room
  bool empty() const { return processes.empty() && more == 0; }
};

// Adds the list in `directory`, if there is one.
void read_uncaptured(const std::filesystem::path& directory, UncapturedList& list);

// For people, one line each.
std::vector<std::string> uncaptured_lines(const Trace& trace);

}  // namespace torchprof::formats
