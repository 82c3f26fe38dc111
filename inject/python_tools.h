// 3.12 and later: steps around the functions by which the program traces and monitors itself, so that they show it what
// they would show without us.
//
// sys.monitoring: to the program our tool id looks free, and if it wants that id it gets it
// (tracer/python/monitoring.h). sys.settrace: see there. The steps go into the functions' method
// tables (method_table.h).
#pragma once

namespace torchprof::inject {

// Once, with the GIL held, after the capture of calls has been started.
void hide_our_tool() noexcept;

}  // namespace torchprof::inject
