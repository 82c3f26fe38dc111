// What a thread did in some time, by the looks of the recorder's sampler at it (Timeline::samples).
//
//   look     a sample. One of a thread that did not run in it says what it waited for all the while. One of a thread
//            that ran says what it did at the look itself, at its end, and stands for the time since the look before
//   account  the time of a stretch, or of many, in ns: on a processor, ready to run without one, and waiting for each
//            thing. A look that lies in its stretch as a whole is divided as the kernel said; of one that has begun
//            before it all counts for what the thread did at its end
//
// How many are needed. A share of n looks is right to sqrt(p(1-p)/n): to say by halves what a thread does it takes few.
// Of five looks or more two thirds are asleep in one of fourteen cases at most where the thread sleeps less than three
// tenths of the time (binomial; six looks are the worst). Of fewer nothing is said.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

inline constexpr double kFewestLooks = 5;

struct WaitsFor {
  SampledWait wait{};
  uint32_t what = 0;  // of kOther the system call, of kGil the thread that has it; otherwise 0
  uint32_t name = 0;  // of a file, a socket, a child's command; of kGil the line of the program at which its thread is
  auto operator<=>(const WaitsFor&) const = default;
};

struct ThreadAccount {
  int64_t ran_ns = 0;
  int64_t queued_ns = 0;
  std::map<WaitsFor, int64_t> waits{};  // SampledWait::kUnknown: it is not known for what
  double looks = 0;                     // a wait that goes on counts as the looks that there were in it

  int64_t waited_ns() const;
  int64_t all_ns() const;
  bool is_enough() const { return looks >= kFewestLooks; }
  // That with most time, where it has at least half of all waits; else what is not known.
  WaitsFor waits_most_for() const;
};

// The looks at the thread of a row, in the order of their ends.
class ThreadLooks {
 public:
  // The timeline must outlive it.
  ThreadLooks(const Timeline& timeline, uint32_t row);

  const std::vector<const TimelineSample*>& all() const { return looks_; }
  // Adds a look that ends in this stretch.
  void add(const TimelineSample& look, int64_t begin, int64_t end, ThreadAccount& to) const;
  // As many looks as it counts for.
  static double weight(const TimelineSample& look);

 private:
  WaitsFor waits_for(const TimelineSample& look) const;
  uint32_t program_line_of(uint32_t tid, int64_t at) const;

  const Timeline& timeline_;
  std::vector<const TimelineSample*> looks_;
  bool knows_waits_ = false;
};

// The line, as a name, at which the frame of this function ("train.py(8): rebuild") stands, in the stack that ends with
// `frame`: the innermost such frame. 0: there is none, or it has no line.
uint32_t line_in_function(const Timeline& timeline, uint32_t frame, std::string_view function);

}  // namespace torchprof::formats
