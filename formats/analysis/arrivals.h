// Which ranks have begun the latest collective of their group, and which have not arrived there yet.
//
// NCCL and its like say the group of each collective (record_param_comms), and with torch 2.14 its number; before,
// those of a group are counted. Where no process of the run has said any, as with gloo, the operators c10d::* are
// counted instead, as if all were of one group. Sends and receives are left out. What was counted cannot be compared
// where a process has not recorded all of its run, and nothing of a process whose recording has ended (its window has
// closed, or there was no more room): it may have gone on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Arrival {
  int64_t rank = 0;     // global
  int64_t number = -1;  // of the last collective that it has begun; -1: of none
  std::string name;     // "allreduce", "c10d::allreduce_" ...
  UnixNs time;          // when it did
};

struct GroupArrivals {
  std::string group;             // "0 (default_pg)"; empty: not known
  int64_t size = -1;             // -1: not known
  std::vector<Arrival> ranks;    // by rank; those that are in the trace and belong to the group
  std::vector<int64_t> unknown;  // ranks that do so, too, but whose recording has ended
  int64_t latest() const;        // the highest of the numbers
  bool have_all_arrived() const;
};

// By the group's name; groups of at least two processes of the trace. Reads all events.
std::vector<GroupArrivals> arrivals(const Trace& trace);

// One line: "allreduce, number 5 of group 0 (default_pg): begun by ranks 0, 1 and 3; not yet by rank 2, which is at
// number 4"
std::string arrivals_text(const GroupArrivals& group);

}  // namespace torchprof::formats
