// The steps of one process as rules of advice look at them: where the time of its threads and GPUs went.
//
//   steps     those that the timeline holds; without any, the whole capture is one
//   main row  the thread that runs the program: of those with a span around most of the steps' time the one on which
//             most operators and calls of CUDA ran
//   activity  what a span is, or what it is inside of: the outermost of those that cover what is inside counts
//   own       time of a span without the spans directly inside it, within the steps
//   idle      the same, but only while no GPU worked; 0 in a process without GPU work
//   place     the program's own function around a span, or the span itself; a line of it where that is known
//
// Memory: 32 bytes for each span.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/analysis/activity.h"
#include "formats/io/intervals.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

// "Memcpy DtoH (Device -> Pageable)", as Kineto names it.
bool is_copy_to_pageable(std::string_view name);

struct RowView {
  std::vector<int64_t> own;        // ns, by span; never negative
  std::vector<int64_t> idle;       // ns, by span
  std::vector<Activity> activity;  // by span
  std::vector<uint32_t> place;     // name, by span; 0: not known
};

// Time and number of something, by place.
struct PlaceSum {
  int64_t ns = 0;
  uint64_t count = 0;
};
using PlaceSums = std::map<uint32_t, PlaceSum>;
// The known place with the most time; 0: there is none.
uint32_t most_of(const PlaceSums& sums);

class StepView {
 public:
  // The timeline must outlive it.
  explicit StepView(const Timeline& timeline);

  const Timeline& timeline() const { return timeline_; }
  bool has_steps() const { return !timeline_.steps.empty(); }
  const std::vector<StepSpan>& steps() const { return steps_; }
  int64_t all_ns() const { return all_ns_; }  // sum of all steps
  int64_t step_ns() const { return per_step(all_ns_); }
  int64_t typical_ns() const { return typical_ns_; }  // the median step
  int64_t per_step(int64_t ns) const { return ns / static_cast<int64_t>(steps_.size()); }
  double per_step(uint64_t n) const { return static_cast<double>(n) / static_cast<double>(steps_.size()); }

  int64_t in_steps(int64_t begin, int64_t end) const { return within_.length(begin, end); }
  int64_t in_steps(const Intervals& settled) const;  // length within all steps
  // Adds, or takes off, what of it lies in each step.
  void add_to_steps(int64_t begin, int64_t end, int sign, std::vector<int64_t>& by_step) const;
  int64_t idle_ns(int64_t begin, int64_t end) const { return end - begin - busy_.length(begin, end); }  // no GPU worked
  bool begins_in_step(int64_t time) const { return within_.length(time, time + 1) != 0; }

  bool has_main() const { return main_ != kNoSpan; }
  uint32_t main() const { return main_; }
  // Of each row of the timeline; those of overflow rows are empty.
  const std::vector<RowView>& rows() const { return rows_; }
  std::string_view text(uint32_t name) const { return timeline_.text(name); }
  std::string where(uint32_t place) const { return std::string(text(place)); }

  bool has_gpu() const { return !timeline_.work.empty(); }
  int64_t busy_ns() const { return busy_ns_; }           // time in steps in which a GPU did anything
  int64_t kernels_ns() const { return kernels_ns_; }     // ... ran kernels other than NCCL's
  const Intervals& kernels() const { return kernels_; }  // settled

 private:
  void mark_waiting_copies();
  bool has_units(uint32_t r) const;
  void find_main();
  void look_at(uint32_t row);

  const Timeline& timeline_;
  std::vector<StepSpan> steps_;
  Intervals within_, busy_, kernels_;
  std::vector<RowView> rows_;
  std::vector<Activity> by_name_;  // of names, without calls of CUDA
  uint32_t main_ = kNoSpan;
  int64_t all_ns_ = 0, typical_ns_ = 0, busy_ns_ = 0, kernels_ns_ = 0;
};

}  // namespace torchprof::formats
