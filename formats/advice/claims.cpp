#include "formats/advice/claims.h"

#include <algorithm>
#include <utility>

#include "formats/io/median.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

void GroupCost::add(size_t step, uint32_t place, int64_t more) {
  add_to(ns, more);
  add_to(places[place].ns, more);
  ++places[place].count;
  steps_with += by_step[step] == 0 && more > 0;
  add_to(by_step[step], more);
}

int64_t GroupCost::typical(double part) const {
  if (steps_with == 0) return 0;
  int64_t ns_of_step = ns / static_cast<int64_t>(by_step.size());
  if (size_t{steps_with} * 2 >= by_step.size()) {
    std::vector<int64_t> having;
    for (const int64_t each : by_step)
      if (each > 0) having.push_back(each);
    const double in_half = static_cast<double>(median_of(std::move(having)));
    ns_of_step = std::min(ns_of_step, static_cast<int64_t>(in_half * static_cast<double>(steps_with) /
                                                           static_cast<double>(by_step.size())));
  }
  return static_cast<int64_t>(static_cast<double>(ns_of_step) * part);
}

Claims::Claims(const StepView& view)
    : view_(view),
      row_(view.rows()[view.main()]),
      spans_(view.timeline().rows[view.main()].spans),
      end_(spans_.size()),
      step_(spans_.size(), kNoStep),
      claimed_(spans_.size()) {
  const auto count = static_cast<uint32_t>(spans_.size());
  for (uint32_t i = 0; i < count; ++i) end_[i] = i + 1;
  for (uint32_t i = count; i-- > 0;)
    if (const uint32_t parent = spans_[i].parent; parent != kNoSpan) end_[parent] = std::max(end_[parent], end_[i]);
  const std::vector<StepSpan>& steps = view.steps();
  uint32_t step = 0;
  for (uint32_t i = 0; i < count; ++i) {
    while (step < steps.size() && steps[step].end <= spans_[i].begin) ++step;
    if (step < steps.size() && steps[step].begin <= spans_[i].begin) step_[i] = step;
  }
}

bool Claims::is_free(uint32_t span) const { return !claimed_[span] && !covers(row_.activity[span]); }

int64_t Claims::free_ns(uint32_t from, uint32_t to) const {
  int64_t ns = 0;
  for (uint32_t i = from; i < to; ++i)
    if (is_free(i)) add_to(ns, row_.own[i]);
  return ns;
}

// Its time without what is claimed in it; what the functions around it do between its spans is of it.
int64_t Claims::length_of(const Group::Stretch& s) const {
  if (s.first == s.last) return free_ns(s.first);
  int64_t ns = view_.in_steps(spans_[s.first].begin, spans_[s.last].end);
  for (uint32_t i = s.first; i < end_[s.last]; ++i)
    if (!is_free(i)) add_to(ns, -row_.own[i]);
  return std::max<int64_t>(0, ns);
}

GroupCost Claims::cost_of(const Group& group) const {
  GroupCost cost;
  cost.by_step.resize(view_.steps().size());
  for (const Group::Stretch& s : group.stretches)
    if (step_[s.first] != kNoStep) cost.add(step_[s.first], row_.place[s.first], length_of(s));
  return cost;
}

void Claims::claim(const Group& group) {
  for (const Group::Stretch& s : group.stretches) {
    if (s.first != s.last) {
      int64_t ns = view_.in_steps(spans_[s.first].begin, spans_[s.last].end);
      for (uint32_t i = s.first; i < end_[s.last]; ++i) add_to(ns, -row_.own[i]);
      uint32_t around = spans_[s.first].parent;
      while (around != kNoSpan && end_[around] < end_[s.last]) around = spans_[around].parent;
      if (around != kNoSpan && ns > 0) add_to(between_[around], ns);
    }
    for (uint32_t i = s.first; i < end_[s.last]; ++i)
      if (is_free(i)) claimed_[i] = true;
  }
}

}  // namespace torchprof::formats
