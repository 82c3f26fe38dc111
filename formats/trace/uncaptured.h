// What is missing for want of room: processes whose capture ended before they did, and those of which there is nothing.
//
// Times of a process count from when its spool was opened. A hostile spool or list gives wrong times, no more.
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
  int64_t ns = 0;                  // until when it was captured
  std::optional<int64_t> of_ns{};  // how long it lived; none: not known
  bool is_at_most = false;         // of_ns is when the run ended: it did not end in an orderly way
  bool has_events = false;         // false: nothing of it was recorded
  LossCause cause{};
};

// None: it was captured to its end, as far as there was room. `run_end`: of the command, 0 if it is not known.
std::optional<CutShort> cut_short(const Process& process, UnixNs run_end);
// "captured until 3.210 s of 12.400 s", "captured until 3.210 s", "never captured"
std::string text_of(const CutShort& cut);

// ", captured until 3.210 s of 12.400 s", for the name of the process's rows in a trace; empty where it is whole.
std::string cut_label(const Process& process);

struct Uncaptured {  // a line of RUN/spool/uncaptured (tracer/spool/layout.h)
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  UnixNs time{};
  LossCause cause{};
  int error = 0;  // errno
  bool is_forked = false;
  std::string command;  // as it lies there: any bytes

  std::string reason() const;  // "no spool could be made (No space left on device)"
};

struct UncapturedList {
  std::vector<Uncaptured> processes;
  uint64_t more = 0;  // that had no room in the list
  bool empty() const { return processes.empty() && more == 0; }
};

// Adds what the list in `directory` says, if there is one.
void read_uncaptured(const std::filesystem::path& directory, UncapturedList& list);

// For people, a line each.
std::vector<std::string> uncaptured_lines(const Trace& trace);

}  // namespace torchprof::formats
