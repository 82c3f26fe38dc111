// Names all native frames of a trace before it is written.
#pragma once

#include "formats/trace/trace.h"

namespace torchprof::formats {

// The names come from the file "symbols" beside the spools, then from the object files that the processes had mapped,
// if this machine has the same ones. New ones are added to "symbols" if it can be written.
void name_native_frames(Trace& trace, NativeFrames frames = NativeFrames::kFolded);

}  // namespace torchprof::formats
