// The line of the program that probably keeps the Python objects by which a process grows: an estimate, from two things
// that are known.
//
//   time   to make so many objects takes some: the line was seen at work of its own, in no operator, in at least
//          kFewestLooks looks (timeline/thread_looks.h)
//   text   the line adds to a container: "self.rows.extend(...)". And the container outlives the step: it belongs to an
//          object, or the function around it has several steps. What a function called in a step puts into a list of
//          its own is gone when the function returns
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/advice/step_view.h"

namespace torchprof::formats {

// To what a line of source adds: "self.rows" of "self.rows.extend(x)"; empty: to nothing that is known.
std::string_view container_added_to(std::string_view source);

// As a name; 0: there is none, or there are several.
uint32_t line_that_keeps(const StepView& view);

}  // namespace torchprof::formats
