// The callbacks of at::RecordFunction that write operators' records. Of torch/ alone: operators.cpp gives them to
// torch.
//
// They run in the program's operators, on any thread: nothing is thrown, torch would swallow it with a warning.
#pragma once

#include "tracer/objects/abi.h"

namespace torchprof::torch {

Context on_start(const RecordFunction& function);
void on_end(const RecordFunction& function, void* context);

// Of annotations, where a window has to see them.
Context on_annotation_start(const RecordFunction& function);
void on_annotation_end(const RecordFunction& function, void* context);

}  // namespace torchprof::torch
