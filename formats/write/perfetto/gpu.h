// GPUs in a Perfetto trace, for one process (perfetto.cpp writes the rest).
//
//   * Below the process there is a track "GPU 0" for each device, and below that one for each stream and one for its
//     waits. Work that overlaps on a stream (branches of a graph) gets a second track with the same name.
//   * Calls are slices on the tracks of threads. A flow leads from a call to the work that it started.
//   * Annotations (formats/replay/gpu_annotations.h) have tracks of their own below the stream.
//   * Counters: how much of the time the device was busy, in percent of intervals (kIntervals over the run, each at
//     least 100 us long), and how many pieces of work were launched and had not begun. Also those of
//     formats/gpu/counters.h.
//   * Arguments are those of the Kineto trace without the numbers of events. They are on the end of a slice.
//
// Memory: 32 bytes for each kernel, copy and set, for the counters, because they come in no order.
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

  // `process.gpu` must not be null. All arguments must outlive this. `last_flow`: the last flow id of the file.
  GpuTracks(const Process& process, Interning& names, Packets& packets, uint64_t process_track, uint64_t& last_flow);

  // Encoded fields for the begin of the call's slice, besides its name, and for its end.
  std::string begins(const GpuCall& call);
  std::string arguments(const GpuCall& call);
  // `begin`: encoded fields with name and category. `module`: encoded arguments of the operator that launched it.
  void activity(const GpuActivity& activity, const std::string& begin, const std::string& module);
  // After the annotation's slice is written. `depth`: number of annotations around it.
  void annotation_ended(uint64_t external_id, uint32_t depth, const std::string& begin);
  void finish();

 private:
  struct Lane {
    std::string track;
    int64_t end;  // end of the last slice on it
  };
  struct Device {
    uint64_t track = 0;
    std::vector<std::pair<int64_t, int64_t>> busy;    // begins and ends
    std::vector<std::pair<int64_t, int32_t>> queued;  // times, and the change at each
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
  uint64_t call_flow_ = 0;  // flow id of the last call that has work
  std::map<uint32_t, Device> devices_;
  std::map<std::tuple<uint32_t, uint32_t, Place, uint32_t>, std::vector<Lane>> lanes_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> streams_;  // tracks by device and stream
  std::unordered_map<std::string, std::string> kernels_;       // encoded arguments, by a key of all values in them
  GpuAnnotations annotations_;
  const std::string end_;
};

}  // namespace torchprof::formats::perfetto
