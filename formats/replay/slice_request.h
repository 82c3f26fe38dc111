// What `torchprof export` is asked to show of a run, and its way into the processes of a trace.
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
  std::vector<std::string> processes{};  // process ids, or ranks where no process has the id; empty: all
  std::vector<std::string> threads{};    // ids or names; empty: all

  bool is_all() const { return !steps && !time && min_ns == 0 && processes.empty() && threads.empty(); }
};

// "10..14" or "7"; "1.5s..2s", either side may be left out; "10us" (ns, us, ms, s, m). Nothing: it is none.
std::optional<std::pair<uint64_t, uint64_t>> parse_steps(std::string_view text);
std::optional<std::pair<int64_t, int64_t>> parse_time(std::string_view text);
std::optional<int64_t> parse_duration(std::string_view text);

// Takes the other processes out of the trace and says of each that stays what is shown of it. Steps are those of the
// process; of one that has none the time of the others' steps. Throws Error where nothing has that process, thread or
// step, or the run was over before the time.
void select(const SliceRequest& request, Trace& trace);

}  // namespace torchprof::formats
