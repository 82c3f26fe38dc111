// 3.12 and later: steps around the functions by which the program traces and monitors itself, so that it sees in them
// what it sees without us.
//
// sys.monitoring: our tool's id is free to whoever asks, and who wants it gets it (python_monitoring.h). sys.settrace:
// see python_opcodes.h. By the functions' method tables (method_table.h).
#pragma once

namespace torchprof::inject {

// Once, with the GIL held, after the capture of calls has been started.
void hide_our_tool() noexcept;

}  // namespace torchprof::inject
