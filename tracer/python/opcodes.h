// CPython 3.13 and later: opcode events of a trace function that was set before a second tool came.
//
// As soon as an event of a code object has more than one tool, CPython makes a table of the tools for each instruction.
// That table begins empty for INSTRUCTION, even if a tool had asked for it before (python/cpython#157900, open;
// measured on 3.13.0, 3.13.5 and 3.14.10). A trace function is such a tool, and we are another: a frame whose
// f_trace_opcodes was set before sys.settrace(), as bdb does it, loses its opcode events, and breakpoint() stops a line
// late. If f_trace_opcodes is set again afterwards, the events are back.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// To be called when a trace function was set, or after our events were switched on: sets f_trace_opcodes again on the
// frames that have it and a trace function. With the GIL held; a pending exception is kept; no code of the program
// runs. Does nothing on other versions.
void restate_opcodes_of_this_thread() noexcept;
void restate_opcodes() noexcept;  // of every thread of this interpreter

}  // namespace torchprof::python
