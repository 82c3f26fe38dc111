// Where the slices of a file are drawn, so that the slices of a thread nest, as formats/replay/replay.h draws those of
// a run. A file that torchprof wrote says so itself.
//
// An annotation begins inside of the calls that make it, and ends inside of others (formats/replay/range_helpers.h):
// these helpers are cut at its begin and its end. Where anything else crosses an annotation, the annotation is no part
// of the calls, and is drawn apart. Times and sums are those that were recorded, whatever is drawn.
#pragma once

#include "formats/read/events.h"

namespace torchprof::formats {

// `read.slices` are sorted by thread, begin and then longer ones first, and have their recorded times; calls of
// functions nest. Sets the cuts of calls, and is_apart.
void draw(ReadEvents& read);

}  // namespace torchprof::formats
