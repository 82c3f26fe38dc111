// What is looked up in a timeline again and again: the streams of its devices, and calls of CUDA by correlation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

struct CallAt {
  uint32_t row;
  uint32_t span;
};

struct StreamWork {
  uint32_t device;
  uint32_t stream;
  std::vector<uint32_t> work{};  // indices into Timeline::work, sorted by begin
};

class TimelineIndex {
 public:
  explicit TimelineIndex(const Timeline& timeline);  // which has to outlive it, unchanged

  const Timeline& timeline() const { return *timeline_; }
  const std::vector<StreamWork>& streams() const { return streams_; }    // sorted by device and stream
  std::optional<size_t> stream(uint32_t device, uint32_t stream) const;  // index into streams()
  std::optional<CallAt> call(uint32_t correlation) const;                // of CUDA
  uint32_t main_row(const StepSpan& step) const;  // whose thread runs the step; kNoSpan: no row has spans

 private:
  const Timeline* timeline_;
  std::vector<StreamWork> streams_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> by_number_;
  std::unordered_map<uint32_t, CallAt> calls_;
};

// Steps that follow each other without one left out between; of a timeline without steps, all time. What is computed of
// a device's work is computed of each stretch, of the work that begins in it.
struct Stretch {
  int64_t begin;
  int64_t end;
};
std::vector<Stretch> stretches_of(const Timeline& timeline);
// The work on a stream that begins in a stretch: [first, last) of `work`, which is sorted by begin.
std::span<const uint32_t> work_in(const Timeline& timeline, const std::vector<uint32_t>& work, const Stretch& stretch);

// The spans of a row, sorted by begin, that are open in a step.
struct SpansOfStep {
  std::vector<uint32_t> open;  // when it begins, outermost first
  uint32_t first;              // and those that begin in it: [first, last)
  uint32_t last;
};
SpansOfStep spans_of(const TimelineRow& row, int64_t begin, int64_t end);

}  // namespace torchprof::formats
