// The programs that this process starts keep the library (exec.cpp).
#pragma once

namespace torchprof::inject {

// From the constructor, before the program can change its environment. Some ten symbols are looked up.
void prepare_exec() noexcept;

}  // namespace torchprof::inject
