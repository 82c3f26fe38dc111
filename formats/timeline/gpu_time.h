// What the time of a process's devices went to, and what its streams waited for: HTA's temporal breakdown, kernel
// breakdown, overlap of communication and idle time (hta/analyzers/breakdown_analysis.py and communication_analysis.py,
// at f4d0062), of work alone: HTA also counts what cudaStreamSynchronize() and others waited for as work.
//
// A device's time is from the first begin to the last end of its work; in a timeline of several stretches of steps the
// sum over them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "formats/timeline/timeline_index.h"

namespace torchprof::formats {

// Bits for what ran at a time.
inline constexpr size_t kRanCompute = 1, kRanCommunication = 2, kRanMemory = 4;

struct DeviceTime {
  int64_t ns = 0;
  std::array<int64_t, 8> exactly{};  // by the bits of what ran, and nothing else; 0: nothing, it was idle
  int64_t any(size_t bits) const;    // in which one of these ran
  int64_t idle_ns() const { return exactly[0]; }
  int64_t compute_ns() const { return any(kRanCompute); }
  int64_t other_ns() const { return ns - idle_ns() - compute_ns(); }  // communication or memory, without compute
  int64_t communication_ns() const { return any(kRanCommunication); }
  // Of communication, that while something was computed.
  int64_t hidden_ns() const { return exactly[3] + exactly[7]; }
};

// A pause of a stream is by cause: the call that launched what came next was made only after the end of the work
// before it (host); else it was shorter than kLongestGap (kernel); else something else, as an event.
struct StreamTime {
  uint32_t device = 0;
  uint32_t stream = 0;
  uint64_t works = 0;
  int64_t ns = 0;  // from the first begin to the last end
  int64_t busy_ns = 0;
  int64_t host_wait_ns = 0;
  int64_t kernel_wait_ns = 0;
  int64_t other_wait_ns = 0;
};
// HTA's consecutive_kernel_delay: its documentation says 30 ns, but it compares microseconds.
inline constexpr int64_t kLongestGap = 30'000;

struct GpuTimes {
  std::map<uint32_t, DeviceTime> devices;
  std::vector<StreamTime> streams;  // sorted by device and stream
};
GpuTimes gpu_times_of(const TimelineIndex& index);

}  // namespace torchprof::formats
