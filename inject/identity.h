// The program's user, groups, root and mounts, before they change: inject/identity.cpp.
#pragma once

namespace torchprof::inject {

// Looks libc's own functions up. Once, from the constructor.
void prepare_identity() noexcept;

}  // namespace torchprof::inject
