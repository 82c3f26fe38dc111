// at::RecordFunction -> records: operators, backward functions and user annotations, on every thread, as torch reports
// them.
#pragma once

namespace torchprof::torch {

// Adds our pair of global callbacks if torch has come into the process since the last call. Cheap and idempotent; any
// thread, one at a time.
void attach_if_loaded() noexcept;

// What runs outside of a window is added or taken away (window.h).
void window_opened() noexcept;
void window_closed() noexcept;

// Of the torch that attach_if_loaded() found: major * 100 + minor; 0: none yet, or unknown.
unsigned version() noexcept;

}  // namespace torchprof::torch
