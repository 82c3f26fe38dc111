// Programs that this process starts keep the library (exec.cpp).
#pragma once

namespace torchprof::inject {

// From the constructor, in every process: looks about ten symbols up. Later is too late: in a child between vfork and
// exec the loader's lock may be held by a thread of the parent, and the stack may be small.
void find_exec() noexcept;

// From the constructor, before the program can change its environment.
void prepare_exec() noexcept;

}  // namespace torchprof::inject
