// Annotations that a program makes without torch (torchprof.annotate, annotate.h): recorded as those of
// torch's record_function are, one OpBegin and one OpEnd with the scope USER_SCOPE, and borders of the window where it
// looks for them.
//
// Any thread, with or without the GIL. No lock, no allocation; where one is the border of a window, what that takes.
#pragma once

#include <cstdint>

#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::inject::annotations {

// Nothing is recorded, and no window waits for an annotation. A nanosecond.
inline bool is_idle() noexcept { return !session::is_live() && !window::sees_annotations(); }

// Its key. `name`: NUL-terminated.
uint64_t begin(const char* name) noexcept;
// Also on another thread.
void end(const char* name, uint64_t key) noexcept;
// One that takes no time.
void mark(const char* name) noexcept;

}  // namespace torchprof::inject::annotations
