// Reads what `--format perfetto` writes (formats/write/perfetto/perfetto.h), in this version and earlier ones: slices
// of threads, steps and GPU work, with the arguments that tables need. Counters are left out: they do not say who
// allocated, so there is no table of memory.
//
// Packets are read as a stream. Only open events, GPU work and what ReadEvents holds are kept. A begin and an end that
// follow each other on a track belong together: a slice is written when it ends, after all slices inside it.
#pragma once

#include "formats/io/byte_stream.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause.
ReadEvents read_perfetto(ByteStream& stream);

}  // namespace torchprof::formats
