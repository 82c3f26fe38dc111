// CPython 3.11: a signal that arrives while the main thread waits in C must not stop the other threads.
//
// In 3.11 a frame of a thread with a profile function does not begin while the interpreter's eval_breaker is set: it
// looks for what is pending and starts over (ceval.c, DO_TRACING: RESUME is fetched again). A signal for which the
// program has a handler in Python sets eval_breaker, and only the main thread can handle it. If the main thread waits
// for one of the others, without the GIL (a lock, autograd's threads), neither goes on. Measured on 3.11.2 and 3.11.7;
// it also happens with sys.setprofile alone. Without a profile function the other threads go on.
//
// So a step after Python's own handler in C clears eval_breaker if the main thread does not hold the GIL. It is
// computed anew whenever a thread takes the GIL (take_gil), so nothing is forgotten: the main thread handles the signal
// when it comes back, as without us.
#pragma once

namespace torchprof::inject {

// Does nothing on other versions, and before the module "_signal" is there. May be called any number of times. With the
// GIL held.
void keep_signals_harmless() noexcept;
// Python's own handlers stand alone again.
void leave_signals() noexcept;

}  // namespace torchprof::inject
