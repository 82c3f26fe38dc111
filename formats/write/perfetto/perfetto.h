// Perfetto's own format: protobuf, names written once, made with protozero.
//
//   * A track for each thread; what crosses other annotations on a track below it. Modules, Python functions and
//     operators nest as in the Kineto trace and have the categories of it. A track "Steps" where the marks are made
//     here. A counter for what each device has allocated and reserved. Processes have their ranks in their names.
//     GPUs: formats/write/perfetto/gpu.h. Marks of NVTX and failed allocations are instants.
//   * Arguments: those of the Kineto trace that say something of the program (shapes, types, concrete inputs, sequence
//     number, module, overload, FLOPs, collectives, caller, garbage collections), not its numbers of events. They are
//     on the end of a slice.
//   * Slices come in the order in which they end, each as begin and end: Perfetto sorts by time, and keeps the order of
//     the file where times are equal (src/trace_processor/sorter). Where a slice begins at the same time as those
//     around it, theirs is written before it.
//   * Flows are the legacy pair of phases 's' and 'f' at the begins of both slices: which forward operator it is
//     is known at the end of the backward one.
//   * Times are nanoseconds since the run began, on a clock of the sequence that a snapshot ties to CLOCK_REALTIME. One
//     sequence for each process.
//
// Fields and their source: formats/io/perfetto_fields.h.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_perfetto(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
