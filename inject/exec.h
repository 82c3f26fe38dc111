// Programs that this process starts keep the library (exec.cpp).
#pragma once

namespace torchprof::inject {

// From the constructor, in every process: looks about ten symbols up. Later is too late: in a child between vfork and
// exec the loader's lock may be held by a thread of the parent, and the stack may be small.
void find_exec() noexcept;

// From the constructor, before the program can change its environment.
void prepare_exec() noexcept;

// In the place of prepare_exec() where somebody has attached: from now on programs are started with the library and
// these variables (exec_environment.h), by whatever imports a function for it. The program's own environment stays as
// it is. False: that cannot be. Until forget_variables(), and give_back_places() of late/replaced.h. With the GIL held.
bool prepare_exec_late(const char* variables) noexcept;
// The same for what has been loaded since. Nothing without prepare_exec_late().
void reach_exec() noexcept;

}  // namespace torchprof::inject
