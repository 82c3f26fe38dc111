// Which call launched a piece of work on a device, and whose work it is: one answer for the files of all readers.
//
// A call and its work have the same correlation. It is unique in the process that was profiled; a file of several ranks
// has each of them once a rank. Of several calls with the work's correlation it is that of the work's process where the
// file says the process (ReadWork::process), otherwise the nearest in the file: tools that merge files put one after
// the other, and a profiler writes a call beside its work. A call that begins when the work has ended is not it.
//
// Only a file without calls is joined by the "External id" that Kineto gives to operators and work. It names the
// operator, too, but in files before torch 1.12 it is the correlation itself, which may be the id of any operator.
//
// Work that no call launched is of the process to which most of its device's row belongs.
//
// Memory: 8 bytes for each call while it runs.
#pragma once

#include <string_view>

#include "formats/read/events.h"

namespace torchprof::formats {

// Kineto's categories for calls of CUDA, HIP, XPU and others; old files have them in capitals.
bool is_call_category(std::string_view category);
// Likewise for kernels, copies and sets.
bool is_work_category(std::string_view category);

// Gives each piece of work its process and device, each call the time of its work, and in a file without calls each
// operator a number of its own as ReadSlice::external.
void join_launches(ReadEvents& events);

}  // namespace torchprof::formats
