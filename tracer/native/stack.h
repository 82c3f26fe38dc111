// Native stacks: who called, back to the beginning of the thread, as return addresses.
//
//     const NativeFrameId stack = native::take_stack(buffer);     // none: there is none, or nothing is recorded
//
// A stack begins with the recorder's own frames, which readers leave out. It is a leaf of one tree of the process: a
// frame is its return address and the frame that it returns to, and is defined in the spool at first sight. If all
// frames are known, taking a stack takes no lock and allocates nothing; it costs about 8 ns for each frame, and 3 more
// for each that was not in the stack which the thread took before.
//
// The Python functions that the interpreter's loop runs come before the frame of the loop (python/frames.h).
//
// Not from signal handlers, which may have interrupted the thread in here. From anywhere else: the loader is asked
// without a lock. What a thread has learned is dropped when an object is unloaded.
#pragma once

#include <atomic>

#include "tracer/spool/ids.h"
#include "tracer/thread_buffer.h"

namespace torchprof::native {

namespace detail {
extern std::atomic<bool> g_wanted;
}

// Starts the source, and notes it in the trace. Once in each turn of the session, when torch is in the process, not
// while the loader's lock is held.
void start() noexcept;
void stop() noexcept;
inline bool wanted() noexcept { return detail::g_wanted.load(std::memory_order_relaxed); }

NativeFrameId take_stack(ThreadBuffer& buffer) noexcept;

// Around dlclose().
void before_unload() noexcept;
void after_unload() noexcept;

}  // namespace torchprof::native
