// Makes a StepGraph (critical_path.h) of timelines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "formats/timeline/critical_path.h"

namespace torchprof::formats {

class StepGraphBuilder {
 public:
  explicit StepGraphBuilder(StepGraph& graph);
  void run();

 private:
  struct Lane {  // a thread: its points are [first, first + count)
    uint32_t process;
    uint32_t row;
    uint32_t first;
    uint32_t count;
  };
  struct Stream {  // of the k-th work the points are first + 2k and first + 2k + 1
    uint32_t process;
    uint32_t device;
    uint32_t stream;
    uint32_t first;
    std::vector<uint32_t> work{};
    std::vector<int64_t> launched{};               // begin of the call, or of one before; sorted
    std::vector<std::optional<uint32_t>> after{};  // point on another stream for which it waits
  };
  struct Collective {  // a kernel of NCCL
    uint32_t process;
    uint32_t work;
    uint32_t begin_point;
  };
  struct Usual {                 // ns, where nothing else was waited for
    int64_t launch[2] = {0, 0};  // from the begin of a call to the begin of its work: kernels; copies and sets
    int64_t next = 0;            // from one work to the next of its stream
  };

  uint32_t add_point(int64_t time);
  void add_edge(uint32_t from, uint32_t to, int64_t lag, const PathPart& part, bool may_be_late = false);
  int64_t time(uint32_t point) const { return graph_.times_[point]; }

  void add_thread(uint32_t process, uint32_t row, bool is_main);
  void add_handovers(uint32_t process, const Lane& main);
  void add_stream(uint32_t process, const StreamWork& stream);
  void add_stream_waits(uint32_t process);
  void add_launches();
  void add_call_waits(uint32_t process);
  void add_full_queues(uint32_t process);
  std::optional<uint32_t> begun_of_full_queue(const Stream& s, size_t k) const;
  void add_collectives();
  void add_end();

  bool is_in_step(int64_t t) const { return t >= begin_ && t < end_; }
  const Lane* lane(uint32_t process, uint32_t row) const;
  std::optional<uint32_t> point_at(const Lane& lane, int64_t time) const;  // the first at that time or later
  const TimelineSpan* call_of(const Stream& s, size_t k) const;            // only one that began in the step
  Usual usual_delays() const;
  void add_wait(uint32_t process, CallAt call, const Stream& s, size_t k);
  // Index of the last work of `s` that was launched before `launched`; none: nullopt.
  std::optional<size_t> last_before(const Stream& s, int64_t launched) const;
  void wait_for_last(uint32_t process, CallAt call, std::optional<std::pair<uint32_t, uint32_t>> stream);
  Stream* stream_of(uint32_t process, uint32_t device, uint32_t stream);

  StepGraph& graph_;
  int64_t begin_, end_;
  std::vector<Lane> lanes_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> lane_of_;  // by process and row
  std::vector<Stream> streams_;
  std::vector<Collective> collectives_;
  std::optional<uint32_t> main_end_;
};

}  // namespace torchprof::formats
