// Kineto's trace format, exactly: what its readers need of it is kept (key order, rows, tail, ids, three decimals of a
// microsecond).
//
// Sources: pytorch/kineto libkineto/src/output_json.cpp, pytorch torch/csrc/profiler/{kineto_metadata,collection}.cpp.
// Beyond Kineto: the top-level key "torchprof" (what was captured and lost, the modules and optimizers with what they
// hold, per process); of calls of modules the args "Module path" (as named_modules() has it) and "Module root" (the
// module that this is the path in); of operators "Module" and "Module path" of the innermost module call around them,
// and "Backward": true in the backward, where the module is the one that called the forward operator. Kineto's own
// "Module Hierarchy" is not used: it names the methods on the way ("TOP(Net)::forward.fc(Linear)::forward"), which
// nobody recorded. Args "preexisting" of frames
// that were on the stack when capture began, "finished": false also for Python, and rows for annotations that cross.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// Several processes: their pids are made unique, ids and flows are numbered on.
void write_kineto(const Trace& trace, Processes processes, Output& out);

// The same events as a bare array that is never closed: "[", then one event a line, each with its comma.
// chrome://tracing and Perfetto read it wherever it is cut. The names of threads stand before their events; those of
// rows for what crosses behind them.
void write_json_stream(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
