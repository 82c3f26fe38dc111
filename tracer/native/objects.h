// The object files whose code was found on stacks.
//
// All under the recorder's lock, of which the caller holds a proof. Nothing here takes the loader's lock: objects are
// found by _dl_find_object (glibc 2.35), which may be called anywhere.
#pragma once

#include <cstdint>

#include "tracer/session.h"
#include "tracer/spool/ids.h"

namespace torchprof::native {

// The object that holds `address`, defined at first sight. None: no file's code, or nothing can be recorded any more.
NativeObjectId object_at(session::DefinitionLock& lock, uintptr_t address) noexcept;

// Forgets what is no longer mapped. True: there was something.
bool forget_unmapped(session::DefinitionLock& lock) noexcept;

}  // namespace torchprof::native
