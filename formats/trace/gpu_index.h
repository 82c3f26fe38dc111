// An index of the GPU records of one process: calls of CUDA by thread and time, activities by correlation.
//
// CUPTI delivers records long after the events that they describe, on threads of its own and in any order. But a call
// of CUDA belongs to the thread that made it, at its time, and a kernel or a copy to the call with the same
// correlation. So the replay looks them up there, instead of reading them in the order of the file.
//
// Memory: 16 bytes for each GPU record. It is the only thing in the reader that grows with the number of events: a
// million kernels and their launches take 32 MB. The records themselves stay in the mapped file. Sorting on the disk
// would bound the memory but need as many bytes there, and a run with that many kernels has a spool of 200 MB for them
// anyhow.
//
// Immutable after finish().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/trace/machine_clock.h"
#include "tracer/spool/reader.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

// CUPTI's clock -> Unix time. The difference between the clocks is interpolated between two samples and constant
// outside of them. Without samples it is that of the machine's clock: CUPTI uses CLOCK_REALTIME unless the program gave
// it another clock. Samples that took long compared with the quickest one are left out.
class GpuTime {
 public:
  void add(const GpuClock& sample) { raw_.push_back({sample.before, sample.after, sample.cupti}); }
  void finish(const ProcessClock& clock);
  int64_t to_unix(uint64_t cupti) const;
  size_t samples() const { return samples_.size(); }
  int64_t widest_ns() const { return widest_ns_; }  // duration of the slowest sample in use: twice the error

 private:
  int64_t unbound(int64_t t) const;

  struct Raw {
    uint64_t before, after, cupti;
  };
  struct Sample {
    int64_t cupti;
    int64_t ahead;  // of Unix time
  };
  std::vector<Raw> raw_;
  std::vector<Sample> samples_;
  ProcessClock clock_;
  int64_t widest_ns_ = 0;
};

// Activities that seem to begin before their launch: the clocks disagree, or CUPTI is wrong.
struct GpuClockFaults {
  uint64_t count = 0;
  int64_t most_ns = 0;
};

class GpuIndex {
 public:
  struct Call {     // GpuApi
    int64_t start;  // CUPTI's
    uint32_t chunk;
    uint32_t word;  // index in the chunk's records, in words of 8 bytes
  };
  struct Activity {  // GpuKernel, GpuCopy, GpuSet, GpuSync or GpuEvent
    uint32_t correlation;
    uint32_t chunk;
    uint32_t word;
    Kind kind;
  };
  static_assert(sizeof(Call) == 16 && sizeof(Activity) == 16);

  explicit GpuIndex(const SpoolReader& spool) : spool_(spool) {}

  // While the spool is loaded. `record` lies in the chunk with this index.
  void add(uint32_t chunk, const RecordView& record);
  void define(const RecordView& record);              // GpuDeviceDef, GpuContextDef, GpuStuckDef, ThreadHandleDef
  void finish(const ProcessClock& clock, Ticks end);  // `end`: the process's last known time

  // Calls of each thread, by start. The key is GpuApi::thread.
  const std::map<uint32_t, std::vector<Call>>& calls() const { return calls_; }
  // By correlation, then by start: the nodes of a graph share one correlation.
  const std::vector<Activity>& activities() const { return activities_; }
  struct Range {  // indices into activities()
    size_t begin, end;
    bool empty() const { return begin == end; }
  };
  Range of_correlation(uint32_t correlation) const;  // empty for 0
  // Unix time at which the next work on its stream begins, where the activity would overlap it on that clock alone: a
  // duration is the device's, and begins follow the drift of the clocks. Otherwise kLatest.
  int64_t next_begin(size_t activity) const;
  const std::vector<Call>& overheads() const { return overheads_; }
  const std::vector<Call>& memory() const { return memory_; }  // GpuMemory, by time, like the next two
  const std::vector<Call>& pools() const { return pools_; }    // GpuMemoryPool
  const std::vector<Call>& environment() const { return environment_; }

  // The record of a Call or an Activity: in the mapped file, or in `room` where an older version wrote it (cursor.h).
  template <class R>
  const R& record(const auto& of, RecordRoom& room) const {
    return whole_record<R>(spool_.chunks()[of.chunk].records.subspan(size_t{of.word} * 8), room);
  }

  const GpuTime& time() const { return time_; }
  const std::map<uint32_t, GpuDeviceDef>& devices() const { return devices_; }
  uint32_t device_of(uint32_t context) const;  // 0 where it is not known, as in Kineto
  // Tracks of the threads that had this handle for CUPTI, in the order in which they got it.
  const std::vector<TrackId>* tracks_of(uint32_t handle) const;
  // The latest cudaEventRecord of this event whose correlation is less than `before`; none: not known.
  struct EventRecord {
    uint32_t correlation;
    uint32_t stream;
  };
  std::optional<EventRecord> recorded(uint32_t context, uint32_t event, uint32_t before) const;

  // What was last known to be stuck, by context and stream.
  const std::map<std::pair<uint32_t, uint32_t>, GpuStuckDef>& stuck() const { return stuck_; }

  const GpuClockFaults& faults() const { return faults_; }
  uint64_t kernels() const { return kernels_; }
  uint64_t timeless() const { return timeless_; }  // kernels, copies and sets whose time CUPTI did not know
  struct Gaps {                                    // while another client of CUPTI had it
    uint64_t count = 0;
    int64_t ns = 0;
  };
  const Gaps& gaps() const { return gaps_; }
  uint64_t lost(GpuLoss loss) const { return lost_[static_cast<size_t>(loss)]; }

 private:
  void note(const GpuKernel& kernel);
  void note(const GpuCopy& copy);
  void note(const GpuSet& set);
  void note(const GpuEvent& event);
  void note(const GpuDropped& dropped, Ticks time);
  void find_faults();
  void find_overlaps();
  void find_gaps(const ProcessClock& clock, Ticks end);

  const SpoolReader& spool_;
  std::map<uint32_t, std::vector<Call>> calls_;
  std::vector<Activity> activities_;
  std::vector<Call> overheads_, memory_, pools_, environment_;
  std::map<std::pair<uint32_t, uint32_t>, GpuStuckDef> stuck_;
  std::map<uint32_t, GpuDeviceDef> devices_;
  std::map<uint32_t, uint32_t> device_of_context_;
  std::map<uint32_t, std::vector<TrackId>> tracks_of_handle_;
  struct Event {
    uint32_t context, event, correlation, stream;
  };
  std::vector<Event> events_;  // by context, event and correlation
  GpuTime time_;
  std::unordered_map<size_t, int64_t> next_begins_;  // of next_begin(): those that are known
  GpuClockFaults faults_;
  std::vector<std::pair<Ticks, GpuLoss>> turns_;  // kAside and kBack
  Gaps gaps_;
  uint64_t kernels_ = 0;
  uint64_t timeless_ = 0;
  std::array<uint64_t, 4> lost_{};  // by GpuLoss
};

// Start and end of a kernel, copy or set, on CUPTI's clock.
struct GpuSpan {
  uint64_t start = 0;
  uint64_t end = 0;
  // The end on the trace's clock, given the begin there, at most `last`. The duration stays what the device said, to
  // the nanosecond: the clocks drift less than their samples differ.
  UnixNs end_after(UnixNs begin, UnixNs last) const {
    const auto ns = static_cast<int64_t>(std::min<uint64_t>(std::max(start, end) - start, INT64_MAX / 4));
    return {std::max(begin.value, std::min(begin.value + ns, last.value))};
  }
};
GpuSpan span_of(const GpuIndex& index, const GpuIndex::Activity& activity);

// A GPU event, not a definition.
inline bool is_gpu(Kind kind) { return kind >= Kind::GpuKernel && kind <= Kind::GpuEnvironment; }

inline bool runs_on_device(Kind kind) {
  return kind == Kind::GpuKernel || kind == Kind::GpuCopy || kind == Kind::GpuSet;
}

}  // namespace torchprof::formats
