// What one process has of the collectives of torch.distributed, by name and group.
//
//   from      for gloo, MPI and UCC the ranges ("gloo:all_reduce"), which last from the call until the collective is
//             done; for NCCL record_param_comms with the kernels that it launched, from the first to the last
//   bytes     of the input or the output, whichever is larger; 0 if not recorded
//   group     with record_param_comms what it says. Gloo, MPI and UCC do not say: if the groups in which the process
//             is have all the same ranks it is the first of them, otherwise it is not known (`has_one_group`)
//   place     which of its group's collectives it is, for match.h: by number, as torch counts (2.14); or by how many
//             have come before it since a moment that all ranks have in common
//
// A kind is a name and a group; groups differ by name and ranks, not by description.
//
// Memory: 56 bytes for each collective.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/replay/replay.h"

namespace torchprof::formats {

struct CommsCall {
  static constexpr int64_t kNoStep = -1;
  static constexpr uint8_t kNoType = 255;  // not known, or of several types

  int64_t begin;  // ns
  int64_t end;
  uint64_t bytes;
  // The step that it began in, from 1, if all of that was recorded; 0: the process was recorded from its begin, and
  // nothing was lost. kNoStep: neither, so that nobody knows how many came before it.
  int64_t step = 0;
  int64_t number = -1;         // of torch's own count in its group; -1: not known
  int32_t peer = -1;           // of a send or recv: the global rank of the other side; -1: not known
  int32_t tag = 0;             // likewise
  bool is_until_done = false;  // `end` is when the collective is done, and not when its call returned
  uint8_t type = kNoType;      // c10::ScalarType of what is sent
};

struct CommsKind {
  std::string name;
  std::string group{};  // for people: description or name; all groups of a DeviceMesh's dimension share one
  std::string id{};     // the group's name and ranks
  std::string ranks{};  // "0, 2"; empty: not known
  auto operator<=>(const CommsKind&) const = default;
};

struct CommsCalls {
  std::map<CommsKind, std::vector<CommsCall>> kinds{};  // the calls of each sorted by begin
  std::optional<int64_t> rank{};                        // global
  bool has_one_group = true;                            // or its calls of gloo, MPI and UCC may be of any of several
  // From 1: the processes of others have nothing to do with it. 0: it does not say that it is a rank, and may be of the
  // same job as others that do not.
  uint32_t job = 0;
  uint32_t machine = 0;    // in Trace::machines
  uint32_t reference = 0;  // Machine::reference: the times of others with the same one can be compared
  int64_t error_ns = 0;    // Machine::error_ns

  bool empty() const { return kinds.empty(); }
  std::vector<CommsCall>& operator[](const CommsKind& kind) { return kinds[kind]; }
};

// `job`: its place among all jobs, from 0 (trace/roles.h).
inline void put_into_job(CommsCalls& calls, uint32_t job) { calls.job = calls.rank ? job + 1 : 0; }

// Whether it is a range of gloo, MPI or UCC, which lasts until the collective is done.
bool is_backend_range(std::string_view name);
// Whether it is a range of a c10d::Work, of any backend. It is asynchronous: it ends when the work is done, on whatever
// thread (torch/csrc/distributed/c10d/Work.cpp, 1.13 to 2.14).
bool is_work_range(std::string_view name);
// Of a CommsKind: one rank sends and another receives, and no group does it together.
bool is_pair(std::string_view name);

class CommsCollector {
 public:
  explicit CommsCollector(const Process& process);
  void slice(const Slice& slice, std::string_view name);
  void gpu(const GpuActivity& activity);
  CommsCalls finish();

 private:
  enum class Is : uint8_t { kNotLookedUp, kNothing, kRange, kSend, kReceive };
  int64_t step_of(int64_t begin) const;
  void post(const Slice& slice, bool is_send);
  void take_posts();

  const Process& process_;
  const bool is_whole_;
  std::vector<Is> is_;                                                 // by name
  std::unordered_map<uint64_t, std::pair<int64_t, int64_t>> kernels_;  // begin and end, by external_id
  CommsKind of_ranges_;                                                // but for the name
  std::vector<int64_t> ranks_of_ranges_;                               // of its group
  CommsCalls calls_;
  struct Post {  // an operator that sends or receives
    int64_t begin, end;
    int32_t peer, tag;
    bool is_send;
  };
  std::vector<Post> posts_;
};

// Replays each of the processes, several at once (io/parallel.h). In their order; empty, without a replay, of a process
// that has no collectives.
std::vector<CommsCalls> calls_of(const std::vector<const Process*>& processes);

}  // namespace torchprof::formats
