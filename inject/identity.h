// Sees the program change its user, groups, root and mounts (inject/identity.cpp).
#pragma once

namespace torchprof::inject {

// Looks libc's own functions up. Once, from the constructor.
void prepare_identity() noexcept;

}  // namespace torchprof::inject
