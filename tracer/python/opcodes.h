// CPython 3.13 and later: opcode events of a trace function that was there before a second tool.
//
// A code object is told which tools each of its instructions has to tell once one of its events has more than one tool;
// that table begins empty for INSTRUCTION, also where a tool has it already (python/cpython#157900, open; measured on
// 3.13.0, 3.13.5 and 3.14.10). A trace function shares its events with us, so a frame whose f_trace_opcodes was set
// before sys.settrace(), as bdb does it, has lost its opcode events with it, and breakpoint() stops a line late. Set
// anew afterwards, they are there.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// A trace function was set, or our events came after one: f_trace_opcodes of the frames that have it and a trace
// function is set anew. With the GIL held, a pending exception is kept; no code of the program runs. Does nothing on
// other versions.
void restate_opcodes_of_this_thread() noexcept;
void restate_opcodes() noexcept;  // of every thread of this interpreter

}  // namespace torchprof::python
