// Processes of which nothing can be recorded for want of room: each is named in the file RUN/spool/uncaptured
// (tracer/spool/layout.h has its layout), so that a run says which ones are missing.
//
// Its room is reserved when the first spool of the run is opened, while there still is some: on a full disk a line fits
// all the same. On a file system without fallocate a line that finds no room is lost.
//
// Threads: any, the lines of several processes do not mix. Errors: nothing is said; errno may change.
#pragma once

#include <cstdint>

#include "tracer/spool/layout.h"

namespace torchprof::uncaptured {

// Makes the file if no other process of the run has. `directory` holds the spools.
void reserve(const char* directory) noexcept;

// Adds this process. `error`: an errno, or 0; `is_forked`: its parent had stopped recording, for that cause.
void add(const char* directory, LossCause cause, int error, bool is_forked) noexcept;

}  // namespace torchprof::uncaptured
