// What the constructor does in a process that is ours, for those who come later.
#pragma once

namespace torchprof::inject {

// Reads the settings and arms the session, at the first call of all. Any thread. False: nothing is recorded here.
bool arm_once() noexcept;
// The same from an interpreter that was not there when the process started: a program has loaded it since.
void arm_for_python() noexcept;

}  // namespace torchprof::inject
