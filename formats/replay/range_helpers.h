// Which frames only help to begin or to end a range: that of record_function's __enter__ and what it calls, which
// return while the range is open, and that of __exit__, in which it ends.
//
// A range begins in them, so they cross it. They are no part of what the program measures with it, so they are the ones
// that are cut in a picture, and not the range. What is inside of them is cut with them, whatever it is: a generator
// under contextlib, another profiler's own function, the __torch_dispatch__ of a mode. Times and sums are not touched.
//
// A helper is known by its name alone: the special methods of a context manager; functions that are there to begin and
// end ranges (kHelperFiles); torch.profiler.profile.step(); a C call directly around the begin or the end.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/replay/thread_stack.h"
#include "formats/trace/trace.h"
#include "formats/trace/track_cursor.h"

namespace torchprof::formats {

// By name and file of a function: "__enter__", "torch/profiler/profiler.py".
bool is_range_helper(std::string_view name, std::string_view file);

class RangeHelpers {
 public:
  explicit RangeHelpers(const Process& process) : process_(process) {}

  bool is_helper(const Span& span);
  // The id of the outermost frame or C call that helps to begin the range at index `range`; 0: none. Asked when the
  // first of those around the range ends, while `at` is at the record that says so. What ends before the range does is
  // looked for in the next kMostRecords records: helpers return soon.
  uint64_t find_helper(const ThreadStack& stack, int32_t range, const TrackCursor& at);

 private:
  static constexpr size_t kMostRecords = 1000;

  const Process& process_;
  std::vector<int8_t> functions_;  // by id: 1 yes, -1 no, 0 not looked up yet
};

}  // namespace torchprof::formats
