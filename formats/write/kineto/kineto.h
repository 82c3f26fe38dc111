// Kineto's trace format with everything that its readers rely on: order of keys, rows, the events at the end, ids,
// three decimals of a microsecond.
//
// Sources: pytorch/kineto libkineto/src/output_json.cpp, pytorch torch/csrc/profiler/{kineto_metadata,collection}.cpp.
// Beyond Kineto there are:
//   * the top-level key "torchprof": for each process what was captured and lost, and its modules and optimizers with
//     what they hold;
//   * in calls of modules the arguments "Module path" (as in named_modules()) and "Module root" (the module in which
//     that is the path);
//   * in operators "Module" and "Module path" of the innermost module call around them, and "Backward": true in the
//     backward, where the module is the one that called the forward operator. Kineto's own "Module Hierarchy" is not
//     used: it names the methods on the way ("TOP(Net)::forward.fc(Linear)::forward"), which nobody recorded;
//   * "preexisting" in frames that were on the stack when capture began, and "finished": false also for Python;
//   * rows for annotations that cross others.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

// With several processes their pids are made unique, and ids and flows are numbered through.
void write_kineto(const Trace& trace, Processes processes, Output& out);

// The same events as a bare array that is never closed: "[", then one event a line, each with its comma.
// chrome://tracing and Perfetto read it wherever it is cut off. Names of threads come before their events, those of
// overflow rows after them.
void write_json_stream(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
