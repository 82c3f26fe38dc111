// Names of native frames, when a trace is to be written.
#pragma once

#include "formats/trace/trace.h"

namespace torchprof::formats {

// Of all processes: first from the file "symbols" beside their spools, then from the object files that they had mapped,
// as far as this machine has the same ones. What was found anew is added to that file, if it can be.
void name_native_frames(Trace& trace, NativeFrames frames = NativeFrames::kFolded);

}  // namespace torchprof::formats
