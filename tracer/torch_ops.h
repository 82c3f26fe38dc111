// at::RecordFunction -> records: operators, backward functions and user annotations, on every thread, as torch reports
// them.
#pragma once

namespace torchprof::torch {

// Adds our pair of global callbacks if torch has come into the process since the last call. Cheap and idempotent; any
// thread, one at a time.
void attach_if_loaded() noexcept;

}  // namespace torchprof::torch
