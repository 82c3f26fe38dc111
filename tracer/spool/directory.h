// The directory of a run's spools, RUN/spool: made, or found where the launcher has made it.
//
// What a program did is its user's business: RUN and RUN/spool are for nobody else to read. What is above them is as
// `mkdir -p` makes it. A link in their place is refused, it would lead elsewhere. False: errno says why.
#pragma once

namespace torchprof {

// Makes it, and what is missing above it.
bool make_spool_directory(const char* path) noexcept;

// False with ENOENT: the run directory that the launcher made cannot be seen from here. It may itself have removed
// RUN/spool alone, once it had exported what was in it: whoever comes later makes that again.
bool find_spool_directory(const char* path) noexcept;

}  // namespace torchprof
