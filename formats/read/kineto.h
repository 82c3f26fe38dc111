// Reads a trace file in Kineto's JSON, ours or torch.profiler's, compressed or not. It may also be the bare list of
// events that torch writes without Kineto, or an old file with whole microseconds.
//
// The document is read as a stream and never held as a whole; events.h says what is kept.
#pragma once

#include "formats/io/byte_stream.h"
#include "formats/read/events.h"

namespace torchprof::formats {

// `has_inputs`: with the inputs of operators (ReadRequest). Throws Error naming the file and the cause:
// unreadable, cut off, not JSON, no trace.
ReadEvents read_kineto(ByteStream& stream, bool has_inputs);

}  // namespace torchprof::formats
