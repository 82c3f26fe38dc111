// Arms the session, as the constructor does in a process that is to be traced; for entries that come later.
#pragma once

namespace torchprof::inject {

// The first call reads the settings and arms the session. Any thread. False: nothing is recorded here.
bool arm_once() noexcept;
// The same for an interpreter that the program has loaded after the start of the process.
void arm_for_python() noexcept;

// Whether the library came when an interpreter was running already: nothing that was loaded before resolves to it.
bool is_late() noexcept;

}  // namespace torchprof::inject
