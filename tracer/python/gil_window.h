// What a window (window.h) needs from the interpreter: calls on and off, and which optimizer is in its step. Takes the
// GIL.
#pragma once

namespace torchprof::python {

// Registers Python as the window's interpreter. Whenever a window opens, every thread states its stack anew.
void follow_window() noexcept;

}  // namespace torchprof::python
