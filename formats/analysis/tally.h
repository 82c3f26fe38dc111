// Sums by name; formats/report/summary.h defines them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace torchprof::formats {

// For Python functions. There may be millions of them, so this is all that they have.
struct CallTally {
  int64_t self_ns = 0;
  int64_t total_ns = 0;
  uint64_t calls = 0;
  CallTally& operator+=(const CallTally& other);
  void add_call(int64_t own_ns, int64_t whole_ns) { *this += CallTally{own_ns, whole_ns, 1}; }
};
using CallTallies = std::unordered_map<std::string, CallTally>;  // by name

struct Tally : CallTally {
  int64_t cpu_bytes = 0;           // allocated less freed by the operator itself, not by one inside it
  int64_t device_bytes = 0;        // the same on all other devices together
  int64_t cpu_total_bytes = 0;     // with operators inside it; without calls inside another call of the same name
  int64_t device_total_bytes = 0;  // the same on all other devices together
  uint64_t flops = 0;              // formats/values/flops.h
  int64_t gpu_self_ns = 0;         // time of GPU work that it launched
  int64_t gpu_total_ns = 0;        // with operators inside it
  int64_t first_ns = 0;            // self time of its first call in each process
  int64_t initialises_ns = 0;      // in calls directly inside that make CUDA ready
  int64_t loads_ns = 0;            // and in those that load code of kernels
  Tally& operator+=(const Tally& other);

  // Sums that overflow, which only damaged records can cause, wrap around.
  void add_self_bytes(int64_t bytes, bool is_cpu);
  void add_total_bytes(int64_t bytes, bool is_cpu);
};
using Tallies = std::unordered_map<std::string, Tally>;  // by name

}  // namespace torchprof::formats
