// Which time of a process's main row findings tell already, so that no time is told twice.
//
//   span    of the main row (StepView::main()), by its index
//   free    time of a span and of all inside it, within the steps, that nobody has claimed. What loading, compiling,
//           collecting and collectives take is never free here: other rules tell it
//   stretch from the begin of one span to the end of a later one, with what the functions around them do in between
//   group   spans, or stretches, that belong to one finding. Costs of it are by step, in ns
//
// Memory: 13 bytes for each span.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/advice/step_view.h"

namespace torchprof::formats {

struct Group {
  struct Stretch {
    uint32_t first, last;  // spans; the same one: that span alone
  };
  std::vector<Stretch> stretches{};
  void add(uint32_t span) { stretches.push_back({span, span}); }
  void add(uint32_t first, uint32_t last) { stretches.push_back({first, last}); }
  bool empty() const { return stretches.empty(); }
};

struct GroupCost {
  std::vector<int64_t> by_step{};  // free time
  PlaceSums places{};
  int64_t ns = 0;  // in all steps
  uint32_t steps_with = 0;

  void add(size_t step, uint32_t place, int64_t more);
  // Of a step: the median of the steps that have it if these are at least half of all, else the mean; times `part`.
  int64_t typical(double part = 1) const;
};

class Claims {
 public:
  explicit Claims(const StepView& view);  // which has a main row, and outlives it

  static constexpr uint32_t kNoStep = UINT32_MAX;
  uint32_t step_of(uint32_t span) const { return step_[span]; }  // in which it begins
  uint32_t end_of(uint32_t span) const { return end_[span]; }    // one behind the last span inside it
  bool is_claimed(uint32_t span) const { return claimed_[span]; }
  int64_t free_ns(uint32_t span) const { return free_ns(span, end_[span]); }

  GroupCost cost_of(const Group& group) const;
  void claim(const Group& group);

  std::vector<bool> take() { return std::move(claimed_); }

 private:
  bool is_free(uint32_t span) const;
  int64_t free_ns(uint32_t from, uint32_t to) const;
  int64_t length_of(const Group::Stretch& s) const;

  const StepView& view_;
  const RowView& row_;
  const std::vector<TimelineSpan>& spans_;
  std::vector<uint32_t> end_, step_;
  std::vector<bool> claimed_;
};

}  // namespace torchprof::formats
