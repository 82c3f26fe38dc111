// Where the slices of a file are drawn, so that those of a thread nest: as formats/replay/replay.h draws those of a run.
// A run's own file says so itself.
//
// An annotation begins inside of the calls that make it, and ends inside of others (formats/replay/range_helpers.h):
// these helpers are cut at its begin and its end. What else crosses an annotation shows that it is no part of the calls:
// the annotation is drawn apart. Times and sums are those that were recorded, whatever is drawn.
#pragma once

#include "formats/read/events.h"

namespace torchprof::formats {

// `read.slices` are sorted by thread, begin and then longer ones first, and have their recorded times; calls of
// functions nest. Sets the cuts of calls, and is_apart.
void draw(ReadEvents& read);

}  // namespace torchprof::formats
