// The part of a run that `torchprof export` is asked for, and its application to a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct SliceRequest {
  std::optional<std::pair<uint64_t, uint64_t>> steps{};  // first and last
  std::optional<std::pair<int64_t, int64_t>> time{};     // ns since the run began
  int64_t min_ns = 0;
  std::vector<std::string> processes{};  // process ids, or ranks if no process has the id; empty: all
  std::vector<std::string> threads{};    // ids or names; empty: all

  bool is_all() const { return !steps && !time && min_ns == 0 && processes.empty() && threads.empty(); }
};

// Parse "10..14" or "7"; "1.5s..2s", of which either side may be left out; "10us" (units: ns, us, ms, s, m). Nothing:
// the text has another form.
std::optional<std::pair<uint64_t, uint64_t>> parse_steps(std::string_view text);
std::optional<std::pair<int64_t, int64_t>> parse_time(std::string_view text);
std::optional<int64_t> parse_duration(std::string_view text);

// Removes the other processes from the trace and sets the selection of those that stay. Steps are each process's own;
// one without steps gets the time of the others' steps. Throws Error if no process, thread or step is as asked for, or
// if the run had ended before the time.
void select(const SliceRequest& request, Trace& trace);

}  // namespace torchprof::formats
