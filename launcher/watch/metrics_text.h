// The numbers of processes that run, for Prometheus. Pure.
//
// The text is of the text format 0.0.4 and of OpenMetrics 1.0 at once, so one file serves both: counters have no TYPE
// (in one its name has "_total" at its end, in the other it has not), bounds of buckets have a point, and the end is
// marked (in 0.0.4 a comment). Sources: prometheus/docs "Exposition formats"; the OpenMetrics specification 1.0.0.
//
// A value that is not known has no line. All samples of a name lie together, in the order of the processes.
//
// Labels: run (its directory), host, rank, role ("DataLoader worker 3", "other"; of a rank "rank"), and the pid where
// the others do not tell two apart, as for whatever is no rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/watch/top_picture.h"

namespace torchprof::launcher {

struct MeasuredProcess {
  TopProcess process;
  std::optional<int64_t> recorder_ns{};  // of a processor, by the thread of ours in it
};

struct Measured {
  std::string run;
  std::vector<MeasuredProcess> processes{};  // those that live
  int64_t unix_ns = 0;                       // when
  int64_t looked_ns = 0;                     // of a processor, that all looks have taken
};

std::string metrics_text(const Measured& measured);

}  // namespace torchprof::launcher
