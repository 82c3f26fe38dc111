// Reads back what `--format perfetto` writes (formats/write/perfetto/perfetto.h), of this version and the ones before it: slices of
// threads, steps, GPU work, with the arguments that tables need. Counters are left out: they do not say who allocated,
// so there is no table of memory.
//
// Packets come from a stream; nothing is kept of events but what is open, the work of GPUs, and what ReadEvents holds.
// Begins and ends belong together as they follow each other on their track: a slice is written when it ends, after all
// that is inside of it.
#pragma once

#include "formats/io/byte_stream.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause.
ReadEvents read_perfetto(ByteStream& stream);

}  // namespace torchprof::formats
