// What a window (window.h) needs of the interpreter: calls on and off, and whose step an optimizer's is. Takes the GIL.
#pragma once

namespace torchprof::python {

// Registers Python as the window's interpreter. Whenever a window opens, every thread states its stack anew.
void follow_window() noexcept;

}  // namespace torchprof::python
