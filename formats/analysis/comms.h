// Collectives of torch.distributed, by what they are called and their group.
//
//   from      ranges of gloo, MPI and UCC ("gloo:all_reduce"), which last until the collective is done; of NCCL
//             record_param_comms and the kernels that it launched, from the first to the last
//   bytes     of the larger of what goes in and what comes out; 0 where that was not recorded
//   waiting   the nth of a kind is taken for the same collective in all processes that have it: from the begin to that
//             of the process that began last, the slowest, at most as long as it lasted. Needs processes on one clock
//             (one host). A kind is a name and a group, which its name and ranks tell, not its description
//   rate      bytes by time without waiting
//
// Memory: 40 bytes for each collective.
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

#include "formats/replay/replay.h"

namespace torchprof::formats {

struct CommsCall {
  int64_t begin;  // ns
  int64_t end;
  uint64_t bytes;
};
struct CommsKind {
  std::string name;
  std::string group{};  // for people: its description, or its name; all groups of a dimension of a DeviceMesh share one
  std::string id{};     // of the group: its name and its ranks
  std::string ranks{};  // "0, 2"; empty: not known
  auto operator<=>(const CommsKind&) const = default;
};
// Of one process; in the order of begins.
using CommsCalls = std::map<CommsKind, std::vector<CommsCall>>;

struct CommsTally {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  int64_t total_ns = 0;
  int64_t waiting_ns = 0;
  uint64_t compared = 0;       // calls that several processes have
  size_t slowest = 0;          // index of the process that most often began last
  uint64_t slowest_calls = 0;  // how often
};
// Over processes; the slowest is an index into them. `counts`: whether what began then in this process, the last of
// all, is compared; none: all is.
using CommsCounts = std::function<bool(size_t process, int64_t begin)>;
std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes,
                                        const CommsCounts& counts = {});

class CommsCollector {
 public:
  explicit CommsCollector(const Process& process) : process_(process) {}
  void slice(const Slice& slice, std::string_view name);
  void gpu(const GpuActivity& activity);
  CommsCalls finish();

 private:
  const Process& process_;
  std::vector<int8_t> is_range_;                                       // by name: 1 yes, -1 no, 0 not looked at
  std::unordered_map<uint64_t, std::pair<int64_t, int64_t>> kernels_;  // of collectives that are open, by external_id
  CommsCalls calls_;
};

}  // namespace torchprof::formats
