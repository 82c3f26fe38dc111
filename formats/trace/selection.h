// The part of a process that is shown (formats/replay/slice_filter.h applies it).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace torchprof::formats {

struct Selection {
  // Unix time, ns. A slice that crosses an edge is cut there, its self time too; one that only touches an edge is left
  // out.
  int64_t begin = std::numeric_limits<int64_t>::min();
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t min_ns = 0;                  // shorter slices are left out; their time is their caller's self time
  std::vector<std::string> threads{};  // ids, or names as Python or the kernel has them; empty: all
  bool has_critical_path = false;      // as a row of its own, in the formats that have rows
  std::string step{};                  // what a step is (formats/timeline/units.h); empty: found

  bool is_all() const {
    return begin == std::numeric_limits<int64_t>::min() && end == std::numeric_limits<int64_t>::max() && min_ns == 0 &&
           threads.empty();
  }
};

}  // namespace torchprof::formats
