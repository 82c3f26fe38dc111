// Tables that fit the line of a terminal; those of cells.h have kWidth columns, or what they need.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "formats/io/cells.h"

namespace torchprof::formats {

struct Fit {
  size_t width = kWidth;  // of a line, in columns
  // Of each column but the last, for when they do not all fit: the least important ones are left out, of several alike
  // the last; never all. Empty: none is left out, and the lines are longer.
  std::vector<int> importance{};
};

std::string aligned(const Cells& head, const std::vector<Cells>& rows, LastColumn last, const Fit& fit);

}  // namespace torchprof::formats
