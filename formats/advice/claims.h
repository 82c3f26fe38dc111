// Which time of a process's main row findings tell already, so that no time is told twice.
//
//   span    of the main row (StepView::main()), by its index
//   free    time of a span and of all inside it, within the steps, that nobody has claimed. What loading, compiling,
//           collecting and collectives take is never free here: other rules tell it. Nor are imports
//   stretch from the begin of one span to the end of a later one, with what the functions around them do in between
//   group   spans, or stretches, that belong to one finding. Costs of it are by step, in ns
//
// Memory: 13 bytes for each span.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
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

// What findings tell.
struct Claimed {
  std::vector<bool> spans{};                        // by span of the main row; empty: none
  std::unordered_map<uint32_t, int64_t> between{};  // own time of spans, in the steps: between spans of a stretch
};

struct GroupCost {
  std::vector<int64_t> by_step{};  // free time
  PlaceSums places{};
  int64_t ns = 0;  // in all steps
  uint32_t steps_with = 0;

  void add(size_t step, uint32_t place, int64_t more);
  // A cost that less than half of the steps have (Finding::is_rare).
  bool is_rare() const { return by_step.size() > 2 && size_t{2} * steps_with < by_step.size(); }
  // Of a step, times `part`: the mean, or if at least half of the steps have it their median where that is less, so
  // that one long step does not count.
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

  // Ends the use of this.
  Claimed take() { return {std::move(claimed_), std::move(between_)}; }

 private:
  bool is_free(uint32_t span) const;
  int64_t free_ns(uint32_t from, uint32_t to) const;
  int64_t length_of(const Group::Stretch& s) const;

  const StepView& view_;
  const RowView& row_;
  const std::vector<TimelineSpan>& spans_;
  std::vector<uint32_t> end_, step_;
  std::vector<bool> claimed_;
  std::unordered_map<uint32_t, int64_t> between_;
};

}  // namespace torchprof::formats
