// The part of a process that is shown: what a replay hands out (formats/replay/slice_filter.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace torchprof::formats {

struct Selection {
  // Unix, ns. What is open at an edge is cut there, and its own time with it; what only touches one is left out.
  int64_t begin = std::numeric_limits<int64_t>::min();
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t min_ns = 0;                  // what is shorter is left out, and is its caller's own time
  std::vector<std::string> threads{};  // ids or names, of Python or the kernel; empty: all

  bool is_all() const {
    return begin == std::numeric_limits<int64_t>::min() && end == std::numeric_limits<int64_t>::max() && min_ns == 0 &&
           threads.empty();
  }
};

}  // namespace torchprof::formats
