// How work gets to the device, by stream: calls that launch it, how long it waits, how much waits at a time; and how
// fast copies are. HTA's launch statistics, queue lengths and memory bandwidth (hta/analyzers/cuda_kernel_analysis.py
// and trace_counters.py, at f4d0062).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/timeline/timeline_index.h"

namespace torchprof::formats {

// Of work whose call is known.
struct StreamLaunches {
  uint32_t device = 0;
  uint32_t stream = 0;
  uint64_t works = 0;
  int64_t call_ns = 0;
  int64_t work_ns = 0;
  // From the end of the call to the begin of the work; 0 if that began before.
  int64_t delay_ns = 0;
  int64_t delay_median_ns = 0;
  int64_t delay_max_ns = 0;
  uint64_t short_works = 0;  // that take less time than their calls
  uint64_t slow_calls = 0;   // longer than kSlowCall
  uint64_t late_works = 0;   // with a delay of more than kLate
  // How much was launched and had not begun: after each call's begin and each work's begin.
  int64_t queue_min = 0;
  int64_t queue_max = 0;
  double queue_mean = 0;
  int64_t queue_median = 0;
};
inline constexpr int64_t kSlowCall = 50'000, kLate = 100'000;  // ns; HTA's runtime_cutoff and launch_delay_cutoff

struct CopyRates {  // of copies and sets of one kind
  uint64_t works = 0;
  int64_t ns = 0;
  uint64_t bytes = 0;
  // Bytes by ns, of each with a known size and a time.
  uint64_t rated = 0;
  double rate_min = 0;
  double rate_max = 0;
  double rate_sum = 0;
};

struct Launches {
  std::vector<StreamLaunches> streams;      // sorted by device and stream
  std::map<std::string, CopyRates> copies;  // by kind: "Memcpy HtoD", "Memset"
};
Launches launches_of(const TimelineIndex& index);

}  // namespace torchprof::formats
