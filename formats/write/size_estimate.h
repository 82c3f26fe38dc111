// How large a trace in JSON will be, known before it is written.
#pragma once

#include <cstdint>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// Bytes of the uncompressed JSON (write_kineto()) of these processes, all of their events: numbers of records times the
// mean bytes of each kind. For programs of torch it is off by some per cent; very long names, of kernels above all,
// make a trace larger than this.
uint64_t json_size_estimate(Processes processes);

}  // namespace torchprof::formats
