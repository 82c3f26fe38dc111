// The object files whose code was found on stacks.
//
// The caller holds the recorder's lock; the parameter `lock` proves it. Nothing here takes the loader's lock: objects
// are found by _dl_find_object, which may be called anywhere. (Before glibc 2.35: tracer/libc/old_libc.h.)
#pragma once

#include <cstdint>

#include "tracer/libc/old_libc.h"
#include "tracer/session.h"
#include "tracer/spool/ids.h"

namespace torchprof::native {

// The object in which `address` lies, defined at first sight. None: it is in no file's code, or nothing can be recorded
// any more.
NativeObjectId object_at(session::DefinitionLock& lock, uintptr_t address) noexcept;

// Forgets the objects that are no longer mapped. True: there were some.
bool forget_unmapped(session::DefinitionLock& lock) noexcept;

}  // namespace torchprof::native
