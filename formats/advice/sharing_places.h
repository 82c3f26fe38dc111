// Lines at which the program decides how many threads and processes share the processors.
//
//   children   the line at which most of the processes were started that the program started itself, as far as calls
//              were recorded; not those that torch starts
//   threads    the only call of set_num_threads() in the text of the program's files. That it decided is not recorded:
//              ask only where the number is another one than the environment's
//   operators  the line whose operators take most of the time
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/advice/rules.h"
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

// The line of the program that probably keeps the Python objects by which a process grows: an estimate, from two things
// that are known.
//
//   time   to make so many objects takes some: the line was seen at work of its own, in no operator, in at least
//          kFewestLooks looks (timeline/thread_looks.h), or a finding about Python names it
//   text   the line adds to a container: "self.rows.extend(...)". And the container outlives the step: it belongs to an
//          object, or the function around it has several steps. What a function called in a step puts into a list of
//          its own is gone when the function returns

// To what a line of source adds: "self.rows" of "self.rows.extend(x)"; empty: to nothing that is known.
std::string_view container_added_to(std::string_view source);

// Empty: there is none, or there are several.
std::string line_that_keeps(const StepView& view, const Findings& findings);

}  // namespace torchprof::formats
