// Perfetto's own format: protobuf with interned names, written with protozero.
//
//   * A track for each thread; slices that cross other annotations are on a track below it. Modules, Python functions
//     and operators nest as in the Kineto trace and have its categories. A track "Steps" for the marks that we make.
//     A counter for what each device has allocated and reserved. Processes have their ranks in their names. GPUs are in
//     gpu.h. Marks of NVTX and failed allocations are instants.
//   * Arguments: those of the Kineto trace that tell something of the program (shapes, types, concrete inputs, sequence
//     number, module, overload, FLOPs, collectives, caller, garbage collections), not its numbers of events. They are
//     on the end of a slice.
//   * Slices come in the order of their ends, each as begin and end. Perfetto sorts by time and keeps the file's order
//     where times are equal (src/trace_processor/sorter). So where slices around a slice begin at the same time, their
//     begins are written before its own.
//   * Flows are the legacy pair of phases 's' and 'f' at the begins of both slices, because the forward operator is
//     known only at the end of the backward one. Those from a call to its work on a GPU are flow_ids, above 32 bits:
//     Perfetto has both in one table, where legacy ones count from 0.
//   * Times are nanoseconds since the run began, on a clock of the sequence that a snapshot ties to CLOCK_REALTIME.
//     Each process is one sequence.
//
// Fields and their source: formats/io/perfetto_fields.h.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_perfetto(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
