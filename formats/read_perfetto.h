// Reads back what `--format perfetto` writes (formats/perfetto.h), of this version and the ones before it: slices of
// threads, steps, GPU work, with the arguments that tables need. Counters are left out: they do not say who allocated,
// so there is no table of memory.
//
// Packets come from a stream. What is kept of an event are 32 bytes, two of a slice, and of arguments that tables need
// one entry for each slice that has some.
#pragma once

#include "formats/byte_stream.h"
#include "formats/read_events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause.
ReadEvents read_perfetto(ByteStream& stream);

}  // namespace torchprof::formats
