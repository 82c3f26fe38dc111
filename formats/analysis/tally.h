// What is added up by name (formats/report/summary.h has the definitions).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace torchprof::formats {

// Of Python functions there may be millions, so they have no more than this.
struct CallTally {
  int64_t self_ns = 0;
  int64_t total_ns = 0;
  uint64_t calls = 0;
  CallTally& operator+=(const CallTally& other);
  void add_call(int64_t own_ns, int64_t whole_ns) { *this += CallTally{own_ns, whole_ns, 1}; }
};
using CallTallies = std::unordered_map<std::string, CallTally>;  // by name

struct Tally : CallTally {
  int64_t cpu_bytes = 0;           // operators: allocated less freed while no other was open inside
  int64_t device_bytes = 0;        // the same of all devices but the CPU
  int64_t cpu_total_bytes = 0;     // with those inside it, in calls that are not inside another of the same name
  int64_t device_total_bytes = 0;  // the same of all devices but the CPU
  uint64_t flops = 0;              // formats/values/flops.h
  int64_t gpu_self_ns = 0;         // of work that it launched: formats/analysis/gpu_statistics.h
  int64_t gpu_total_ns = 0;        // with that of the operators inside it
  Tally& operator+=(const Tally& other);

  // Sums of bytes wrap where damaged records make them overflow.
  void add_self_bytes(int64_t bytes, bool is_cpu);
  void add_total_bytes(int64_t bytes, bool is_cpu);
};
using Tallies = std::unordered_map<std::string, Tally>;  // by name

}  // namespace torchprof::formats
