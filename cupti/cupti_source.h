// The GPU's part of the capture: CUPTI's activity records into the spool.
//
//     waiting -> on <-> aside          off: for good; aside: after another client's cuptiFinalize
//            \-> off
//
// Starts when the program initialises CUDA, never before: we must not initialise CUDA ourselves (a forked child could
// not use it then), and a program that does not use CUDA is left alone. Two things tell us: the driver, which calls
// InitializeInjection() in the library that CUDA_INJECTION64_PATH names (prepare() sets it where nobody else has), and
// torch._C._cuda_init(). Activities are enabled while the window is open; CUPTI itself is never shut down.
//
// What we never do: hold a subscription (Kineto of torch up to 2.14 gives up where there is one), call cuptiFinalize
// (CUPTI cannot be used in the process afterwards), call CUPTI from its buffer callbacks (it may hold its locks there),
// or wait for the device. The driver is asked for one number of each device, which CUPTI does not have, once cuInit has
// returned.
//
// Buffers are decoded on a thread of our own. While the window is open, and until its work has ended, it also flushes
// what is complete and reads what is not (in_flight.h), ten times a second, and samples CUPTI's clock, once a second;
// the thread that opens or closes the window samples, too. The last flush is done by an
// exit handler, which is registered after libcuda's and so runs before them. Python dies of a Ctrl-C without exit
// handlers, and os._exit() calls none, so there is a flush at each of these, too. A process that ends in another way
// loses the last tenth of a second, or up to 4 s where a flush takes long (kPeriod and kLongestPeriod).
//
// Other clients of CUPTI: nsys, ncu and others (tracer/gpu_tool.h), and any holder of a subscription (cuda-gdb), have
// the process to themselves: CUPTI is not touched, and one line says so. torch.profiler shares CUPTI with us, and both
// traces are complete (cupti/shared_cupti.h).
//
// fork: if CUDA was not initialised yet, the child starts when it initialises CUDA; otherwise CUDA cannot be used in
// the child, and nothing of it is recorded there.
//
// Every record that CUPTI hands over is written, or counted in a GpuDropped; the fact "gpu.records" has the sums.
#pragma once

namespace torchprof::cupti {

// Registers CUPTI as a source with the window: activities are enabled while it is open, once start() has found CUDA.
void follow_window() noexcept;
// When the session has been armed. `library`: the path of our own library, for the CUDA driver; nullptr: the driver is
// not asked, since threads of the program may read its environment.
void prepare(const char* library) noexcept;
// CUDA is initialised. Any thread, any number of times.
void start() noexcept;

// Writes all records that there are; what still runs on a device is recorded without an end. Any thread, in any state.
void interpreter_ended() noexcept;
// The same for a process that ends at once: our thread does it, and is waited for while it writes. Where it does not,
// it is given up after a second in which it did not run, or after five, and the run says so.
void process_exits_now() noexcept;
// A library of the program (libkineto) takes a subscription: it no longer means that another tool has CUPTI.
void expect_subscriber() noexcept;

}  // namespace torchprof::cupti
