// Native stacks: who called, down to the beginning of the thread, as return addresses.
//
//     const NativeFrameId stack = native::take_stack(buffer);     // none: there is none, or nothing is recorded
//
// It begins with the recorder's own frames, which readers leave out. A stack is a leaf of one tree of the process: a
// frame is its return address and the frame that it returns to, defined in the spool at first sight. Taking one whose
// frames have all been seen takes no lock and allocates nothing; about 8 ns for each frame, and 3 more where it differs
// from the one that the thread took before.
//
// Before the frame of the interpreter's loop come the functions of Python that it runs (python/frames.h).
//
// Not from signal handlers: they may have interrupted the thread here. Anywhere else: what is read of the loader is
// lock-free. What a thread has learned is dropped when an object is unloaded.
#pragma once

#include <atomic>

#include "tracer/spool/ids.h"
#include "tracer/thread_buffer.h"

namespace torchprof::native {

namespace detail {
extern std::atomic<bool> g_wanted;
}

// Says so in the trace. Once, when torch is in the process, not under the loader's lock.
void start() noexcept;
inline bool wanted() noexcept { return detail::g_wanted.load(std::memory_order_relaxed); }

NativeFrameId take_stack(ThreadBuffer& buffer) noexcept;

// Around dlclose().
void before_unload() noexcept;
void after_unload() noexcept;

}  // namespace torchprof::native
