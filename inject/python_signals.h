// CPython 3.11: a signal that arrives while the main thread waits in C must not stop the other threads.
//
// There a frame of a thread that has a profile function does not begin while the interpreter's eval_breaker is set: it
// looks for what is pending and starts over (ceval.c, DO_TRACING: RESUME is fetched again). A signal for which the
// program has a handler in Python sets eval_breaker, and only the main thread can handle it. If that waits for one of
// the others, without the GIL (a lock, autograd's threads), neither goes on; measured on 3.11.2 and 3.11.7, with
// sys.setprofile alone as well. Without a profile function the others go on.
//
// A step behind Python's own handler in C takes eval_breaker back where the main thread does not hold the GIL: it is
// computed anew whenever a thread takes the GIL (take_gil), so nothing is forgotten, and the main thread handles the
// signal when it comes back, as without us.
#pragma once

namespace torchprof::inject {

// Does nothing on other versions, and before the module "_signal" is there. With the GIL held; again and again is fine.
void keep_signals_harmless() noexcept;

}  // namespace torchprof::inject
