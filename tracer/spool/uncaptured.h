// Processes that cannot be recorded because there is no room: each is named in the file RUN/spool/uncaptured
// (tracer/spool/layout.h has its layout), so that the run can say which ones are missing.
//
// Room for the file is reserved when the first spool of the run is opened, so that a line fits even when the disk is
// full. On a file system without fallocate a line is lost if there is no room for it.
//
// Threads: any; the lines of several processes do not mix. Errors: are ignored; errno may change.
#pragma once

#include <cstdint>

#include "tracer/spool/layout.h"

namespace torchprof::uncaptured {

// Makes the file if no other process of the run has. `directory` holds the spools.
void reserve(const char* directory) noexcept;

// Adds this process. `error`: an errno, or 0; `is_forked`: its parent had stopped recording, for that cause.
void add(const char* directory, LossCause cause, int error, bool is_forked) noexcept;

}  // namespace torchprof::uncaptured
