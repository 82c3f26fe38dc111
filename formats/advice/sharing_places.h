// Lines at which the program decides how many threads and processes share the processors.
//
//   children   the line at which most of the processes were started that the program started itself, as far as calls
//              were recorded; not those that torch starts
//   threads    the only call of set_num_threads() in the text of the program's files. That it decided is not recorded:
//              ask only where the number is another one than the environment's
//   operators  the line whose operators take most of the time
#pragma once

#include <string>

#include "formats/advice/step_view.h"

namespace torchprof::formats {

struct SharingPlace {
  std::string where{};   // "train.py(12): main"; empty: not known
  std::string source{};  // the text of that line; empty: not known
};
struct SharingPlaces {
  SharingPlace children{}, threads{}, operators{};
};

// `wants_threads`: whether the files of the program are to be read.
SharingPlaces sharing_places_of(const StepView& view, bool wants_threads);

}  // namespace torchprof::formats
