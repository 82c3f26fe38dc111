// Reads a trace file back: ours or torch.profiler's, .json or .json.gz, also the bare list that torch writes without
// Kineto, and the whole microseconds of old files.
//
// Events are taken from a stream, the document is never held: formats/read/events.h says what is kept.
#pragma once

#include "formats/io/byte_stream.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause: unreadable, cut off, not JSON, no trace.
ReadEvents read_kineto(ByteStream& stream);

}  // namespace torchprof::formats
