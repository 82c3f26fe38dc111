// 3.12 and later: Python calls by sys.monitoring, under a tool id of our own.
//
// If the program wants that very id, we move to another one (tool_is_wanted). Only if it takes all of them we stop.
// Each interpreter has tools of its own, and our id may be different in each. With the GIL held.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

void start_monitoring() noexcept;
// Gives the first interpreter's tool id back.
void stop_monitoring() noexcept;
// In a further interpreter (interpreters.h): calls of Python functions only. False: calls are not recorded there.
bool start_monitoring_here() noexcept;
// Switches events on or off (window.h); our tool id stays ours.
void switch_monitoring(bool on) noexcept;
// Whether calls are seen in this way, in the first interpreter.
bool is_monitoring() noexcept;

// Whether `id` (any object) is the number of our tool, and it is the program that asks.
bool is_our_tool(Object* id) noexcept;
// Takes our tool out of what sys.monitoring._all_events() has returned: {name of an event: bits of its tools}.
void leave_out_our_tool(Object* events) noexcept;

// The program is about to call a function of sys.monitoring for the tool `id` (any object).
void tool_is_wanted(Object* id) noexcept;
// The program has freed a tool id.
void tool_was_freed() noexcept;

// ---- opcode events --------------------------------------------------------------------------------------------------

// CPython 3.13 and later: opcode events of a trace function that was set before a second tool came.
//
// As soon as an event of a code object has more than one tool, CPython makes a table of the tools for each instruction.
// That table begins empty for INSTRUCTION, even if a tool had asked for it before (python/cpython#157900, open;
// measured on 3.13.0, 3.13.5 and 3.14.10). A trace function is such a tool, and we are another: a frame whose
// f_trace_opcodes was set before sys.settrace(), as bdb does it, loses its opcode events, and breakpoint() stops a line
// late. If f_trace_opcodes is set again afterwards, the events are back.

// To be called when a trace function was set, or after our events were switched on: sets f_trace_opcodes again on the
// frames that have it and a trace function. With the GIL held; a pending exception is kept; no code of the program
// runs. Does nothing on other versions.
void restate_opcodes_of_this_thread() noexcept;
void restate_opcodes() noexcept;  // of every thread of this interpreter

}  // namespace torchprof::python
