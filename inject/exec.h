// The programs that this process starts keep the library (exec.cpp).
#pragma once

namespace torchprof::inject {

// From the constructor, in every process: looks some ten symbols up. Later the loader's lock may be held by a thread
// that a child between vfork and exec does not have, and the stack may be a small one.
void find_exec() noexcept;

// From the constructor, before the program can change its environment.
void prepare_exec() noexcept;

}  // namespace torchprof::inject
