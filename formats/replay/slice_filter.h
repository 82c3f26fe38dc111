// A sink in front of another one that lets through what Process::selection selects. The replay has already cut slices
// at the selection's edges; GPU calls and work are cut here.
//
// A flow stays if both of its slices do. GPU work whose call is not shown loses its call.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "formats/replay/replay.h"
#include "formats/trace/selection.h"

namespace torchprof::formats {

class SliceFilter final : public Sink {
 public:
  // `rows` may grow.
  SliceFilter(const Selection& selection, const std::vector<Row>& rows, Sink& sink)
      : selection_(selection), rows_(rows), sink_(sink) {}

  void slice(const Slice& slice) override;
  void flow(const Flow& flow) override;
  void step(const StepMark& mark) override;
  void memory(const MemoryEvent& event) override;
  void python_memory(const MemoryEvent& event) override;
  void gpu_call(const GpuCall& call) override;
  void gpu_activity(const GpuActivity& activity) override;
  void mark(const Mark& mark) override;

 private:
  bool shows(UnixNs begin, UnixNs end) const {
    return end.value > selection_.begin && begin.value < selection_.end && end - begin >= selection_.min_ns;
  }
  bool shows_moment(UnixNs time) const { return time.value > selection_.begin && time.value < selection_.end; }
  bool shows_row(uint32_t row);

  const Selection& selection_;
  const std::vector<Row>& rows_;
  Sink& sink_;
  std::vector<int8_t> shown_rows_;                         // 1 yes, -1 no, 0 not looked up yet
  std::set<std::pair<uint32_t, int64_t>> shown_forwards_;  // row and begin of operators at which a flow may begin
  bool last_was_shown_ = false;
  const GpuCall* shown_call_ = nullptr;  // as it came in
  GpuCall call_{};                       // as it was handed on
};

}  // namespace torchprof::formats
