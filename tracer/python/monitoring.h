// 3.12 and later: Python calls by sys.monitoring, under a tool id of our own.
//
// The program may want that very id: then we move to another (tool_is_wanted). Only where it takes all of them we go.
// Each interpreter has tools of its own, and ours in each may have another id. With the GIL held.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

void start_monitoring() noexcept;
// In an interpreter besides the first (interpreters.h): of functions alone. False: it did not do.
bool start_monitoring_here() noexcept;
// Events on and off (window.h); an id of ours stays ours.
void switch_monitoring(bool on) noexcept;
// Calls are seen in this way, in the first interpreter.
bool is_monitoring() noexcept;

// `id` (any object) is the number of our tool, and who asks is the program.
bool is_our_tool(Object* id) noexcept;
// Takes our tool out of what sys.monitoring._all_events() has given: {name of an event: bits of its tools}.
void leave_out_our_tool(Object* events) noexcept;

// The program is about to call a function of sys.monitoring for the tool `id` (any object).
void tool_is_wanted(Object* id) noexcept;
// It has freed one.
void tool_was_freed() noexcept;

}  // namespace torchprof::python
