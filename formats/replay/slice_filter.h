// A sink in front of another: lets through what Process::selection shows. The replay has cut times to the selection's
// edges already; calls and work of GPUs are cut here.
//
// A flow stays if both of its slices do; GPU work whose call is not shown has none.
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
  std::vector<int8_t> shown_rows_;                         // 1 yes, -1 no, 0 not looked at
  std::set<std::pair<uint32_t, int64_t>> shown_forwards_;  // row and begin of operators that a flow may begin at
  bool last_was_shown_ = false;
  const GpuCall* shown_call_ = nullptr;  // as it came
  GpuCall call_{};                       // as it was handed on
};

}  // namespace torchprof::formats
