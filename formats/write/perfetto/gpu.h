// GPUs in a Perfetto trace, for one process (formats/write/perfetto/perfetto.cpp writes the rest).
//
//   * Below the process a track "GPU 0" for each device, below that one for each stream, and one for its waits. Work
//     that overlaps on a stream (branches of a graph) has a second track of the same name beside the first.
//   * Calls are slices on the tracks of threads; a flow leads from a call to the work that it started.
//   * Annotations: formats/replay/gpu_annotations.h, on tracks of their own below the stream.
//   * Counters: how much of the time the device was busy, in percent of intervals (kIntervals of them over the run, at
//     least 100 us each), and how many pieces of work had been launched and had not begun.
//     Beside them those of formats/gpu/counters.h.
//   * Arguments: those of the Kineto trace without the numbers of events, on the end of a slice.
//
// Memory: 32 bytes for each kernel, copy and set, for the counters: they come in no order.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/replay/gpu_annotations.h"
#include "formats/replay/replay.h"
#include "formats/write/perfetto/packets.h"

namespace torchprof::formats::perfetto {

class GpuTracks {
 public:
  static constexpr int64_t kIntervals = 5000;

  // `process.gpu` is there; all live longer than this. `last_flow`: of the file.
  GpuTracks(const Process& process, Interning& names, Packets& packets, uint64_t process_track, uint64_t& last_flow);

  // Encoded fields for the begin of the call's slice, beside its name, and for its end.
  std::string begins(const GpuCall& call);
  std::string arguments(const GpuCall& call);
  // `begin`: encoded fields, with name and category. `module`: encoded arguments, of what launched it.
  void activity(const GpuActivity& activity, const std::string& begin, const std::string& module);
  // Once the annotation's slice is written; `depth`: annotations around it.
  void annotation_ended(uint64_t external_id, uint32_t depth, const std::string& begin);
  void finish();

 private:
  struct Lane {
    std::string track;
    int64_t end;  // of the last slice on it
  };
  struct Device {
    uint64_t track = 0;
    std::vector<std::pair<int64_t, int64_t>> busy;    // begins and ends
    std::vector<std::pair<int64_t, int32_t>> queued;  // when, and by how much it changes
  };
  enum class Place : uint8_t { kWork, kWaits, kAnnotations };

  Device& device(uint32_t number);
  Lane& lane(uint32_t device, uint32_t stream, Place place, uint32_t depth, int64_t begin);
  std::string arguments(const GpuActivity& activity);
  const std::string& of_kernel(const GpuKernel& kernel);
  void write_busy(const Device& device);
  void write_queue(Device& device);
  void write_counters();

  const Process& process_;
  Interning& names_;
  Packets& packets_;
  const uint64_t process_track_;
  uint64_t& last_flow_;
  uint64_t call_flow_ = 0;  // of the last call that has work
  std::map<uint32_t, Device> devices_;
  std::map<std::tuple<uint32_t, uint32_t, Place, uint32_t>, std::vector<Lane>> lanes_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> streams_;  // tracks
  std::unordered_map<std::string, std::string> kernels_;       // arguments, by what they are made of
  GpuAnnotations annotations_;
  const std::string end_;
};

}  // namespace torchprof::formats::perfetto
