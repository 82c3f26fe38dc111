// Who waits for whom in collectives.
//
//   waiting   a process waits from its begin to the begin of the process that began last (the slowest), at most to its
//             own end. Sums are over calls, of which several may be waited for at once; a process's waiting time is
//             without such overlaps. Who receives waits until the other one has sent. Between machines, whose clocks
//             are only known so well, what is no longer than that error is no waiting, and nobody is said to be last
//   rate      bytes by time without waiting
//
// Which calls are compared: match.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "formats/io/intervals.h"
#include "formats/ranks/calls.h"
#include "formats/ranks/match.h"

namespace torchprof::formats {

// When a process waited for any call of a kind, as the clocks say. By how much one process waits longer than another of
// its machine does not depend on the clocks.
struct CommsWait {
  size_t process;
  Intervals when{};  // settled
};

struct CommsTally {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  int64_t total_ns = 0;
  int64_t waiting_ns = 0;      // without what may be the clocks' error
  uint64_t compared = 0;       // collectives that were found in several processes, or pairs
  uint64_t uncertain = 0;      // calls of which nobody knows which one they are
  size_t slowest = 0;          // index of the process that was most often the last to begin, or to send
  uint64_t slowest_calls = 0;  // how often; 0: nobody is known to have been
  // Where each step has many collectives, all but the first may begin in any order, so the slowest is not seen by who
  // is last: it is who waits least. Empty unless several processes have the kind, and for sends and receives, of which
  // only one side waits.
  std::vector<CommsWait> waits{};
};

// Over several processes; the slowest is an index into them. `counts`, if it is set, chooses the calls that are
// compared, by the process that was last and the time at which it began.
using CommsCounts = std::function<bool(size_t process, int64_t begin)>;
std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes,
                                        const CommsCounts& counts = {});

// How long a call waited for another process, which began or sent then: as the clocks say, and as far as their error
// lets one say it.
struct Waited {
  int64_t ns, surely_ns;
};
Waited waited(const CommsCall& call, const CommsCalls& process, int64_t begin, const CommsCalls& other);

// Of a row of match(): which of its processes was the last to begin, and whether that is sure.
struct LastToBegin {
  size_t column;
  bool is_sure;
};
LastToBegin last_to_begin(const MatchedCalls& matched, size_t row, const std::vector<const CommsCalls*>& processes);

// Of the clocks of two processes: how far one may be off against the other. 0: they are of one machine.
int64_t clock_error(const CommsCalls& a, const CommsCalls& b);

}  // namespace torchprof::formats
