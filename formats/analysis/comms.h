// Collectives of torch.distributed, by their name and group.
//
//   from      for gloo, MPI and UCC the ranges ("gloo:all_reduce"), which last until the collective is done; for NCCL
//             record_param_comms with the kernels that it launched, from the first to the last
//   bytes     of the input or the output, whichever is larger; 0 if not recorded
//   waiting   the nth collective of a kind is taken for the same one in all processes that have the kind; where only
//             windows of a run were captured, the nth of a step that all of them captured in full. A process
//             waits from its begin to the begin of the process that began last (the slowest), at most to its own end.
//             Needs processes on one clock (one host). Sums are over calls, of which several may be waited for at
//             once; a process's waiting time is without such overlaps. A kind is a name and a group; groups differ by
//             name and ranks, not by description
//   rate      bytes by time without waiting
//
// Memory: 40 bytes for each collective, while they are compared 70.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/io/intervals.h"
#include "formats/replay/replay.h"

namespace torchprof::formats {

struct CommsCall {
  int64_t begin;  // ns
  int64_t end;
  uint64_t bytes;
  int64_t step = 0;  // that it began in; 0: the whole run was captured; -1: none that was captured in full
};
struct CommsKind {
  std::string name;
  std::string group{};  // for people: description or name; all groups of a DeviceMesh's dimension share one
  std::string id{};     // the group's name and ranks
  std::string ranks{};  // "0, 2"; empty: not known
  auto operator<=>(const CommsKind&) const = default;
};
// Calls of one process, sorted by begin.
using CommsCalls = std::map<CommsKind, std::vector<CommsCall>>;

struct CommsWait {  // when a process waited for any call of a kind
  size_t process;
  Intervals when{};  // settled
};

struct CommsTally {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  int64_t total_ns = 0;
  int64_t waiting_ns = 0;
  uint64_t compared = 0;       // calls that were found in several processes
  size_t slowest = 0;          // index of the process that was most often the last to begin
  uint64_t slowest_calls = 0;  // how often
  // Where each step has many collectives, all but the first may begin in any order, so the slowest is not seen by who
  // is last: it is who waits least. Empty unless several processes have the kind.
  std::vector<CommsWait> waits{};
};
// Over several processes; the slowest is an index into them. `counts`, if it is set, chooses the calls that are
// compared, by the process that was last and the time at which it began.
using CommsCounts = std::function<bool(size_t process, int64_t begin)>;
std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes,
                                        const CommsCounts& counts = {});

// Whether it is a range of gloo, MPI or UCC, which lasts until the collective is done.
bool is_backend_range(std::string_view name);
// Whether it is a range of a c10d::Work, of any backend. It is asynchronous: it ends when the work is done, on whatever
// thread (torch/csrc/distributed/c10d/Work.cpp, 1.13 to 2.14).
bool is_work_range(std::string_view name);

class CommsCollector {
 public:
  explicit CommsCollector(const Process& process) : process_(process) {}
  void slice(const Slice& slice, std::string_view name);
  void gpu(const GpuActivity& activity);
  CommsCalls finish();

 private:
  int64_t step_of(int64_t begin) const;

  const Process& process_;
  std::vector<int8_t> is_range_;                                       // by name: 1 yes, -1 no, 0 not looked up yet
  std::unordered_map<uint64_t, std::pair<int64_t, int64_t>> kernels_;  // begin and end, by external_id
  CommsCalls calls_;
};

}  // namespace torchprof::formats
