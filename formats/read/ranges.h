// Ranges of NVTX in files of nvprof and nsys. Work belongs to the innermost range that holds the call that launched it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/read/events.h"

namespace torchprof::formats {

// "aten::mm" from "aten::mm, seq = 4, op_id = 17, sizes = [[2, 3]]", as torch.autograd.profiler.emit_nvtx writes it.
std::string range_name(std::string text);

// The ranges of one thread. Calls are asked for in the order of their begins.
class Ranges {
 public:
  struct Range {
    int64_t begin;
    int64_t end;
    uint32_t external;  // as in ReadSlice
  };
  // Sorts `ranges`.
  explicit Ranges(std::vector<Range> ranges);
  // The `external` of the innermost range that begins before the call and ends after it; 0: none.
  uint32_t around(int64_t begin, int64_t end);

 private:
  std::vector<Range> ranges_;
  std::vector<Range> open_;
  size_t next_ = 0;
};

}  // namespace torchprof::formats
