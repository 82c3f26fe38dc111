// The GPU's side of the capture: CUPTI's activity records into the spool.
//
//     waiting -> on <-> aside          off: for good; aside: after another client's cuptiFinalize
//            \-> off
//
// Starts when the program initialises CUDA, never before: CUDA must not be initialised by us (a forked child could not
// use it), and a program that does not use it is left alone. Two things tell: the driver itself, which calls
// InitializeInjection() of the library that CUDA_INJECTION64_PATH names (set by prepare() where nobody else has), and
// torch._C._cuda_init(). Activities are enabled while the window is open and CUPTI itself is never torn down.
//
// What is never done: holding a subscription (Kineto of torch up to 2.14 gives up where there is one), cuptiFinalize
// (it poisons CUPTI for the process), a call of CUPTI from its buffer callbacks (it may hold its locks there), or
// waiting for the device. The driver is asked for one number of each device, which CUPTI does not have, once cuInit has
// returned. Buffers are decoded on a thread of ours, which also flushes what is complete and samples CUPTI's clock once
// a second while the window is open; whoever opens or closes it samples as well. The last flush is that of an exit
// handler, registered after libcuda's, so run before them; Python dies of a Ctrl-C without such handlers and os._exit()
// calls none, so there is one at each of these too. A process that ends otherwise loses the last second.
//
// Other clients of CUPTI: nsys, ncu and the like (tracer/gpu_tool.h), and whoever holds a subscription (cuda-gdb), have
// the process to themselves: CUPTI is not touched, and one line says so. torch.profiler shares it with us, and both
// traces are whole (cupti/shared_cupti.h).
//
// fork: before CUDA was initialised, the child starts when it initialises it; after, CUDA cannot be used there, and
// nothing is recorded of it.
//
// Every record that CUPTI hands over is written, or counted in a GpuDropped; the fact "gpu.records" has the sums.
#pragma once

namespace torchprof::cupti {

// Registers CUPTI as a source with the window: activities are enabled while it is open, once start() has found CUDA.
void follow_window() noexcept;
// In the constructor of a traced process. `library`: our own file, for CUDA to find.
void prepare(const char* library) noexcept;
// CUDA is initialised. Any thread, any number of times.
void start() noexcept;

// Whatever still runs on a device has its record now, without an end. Any thread, in any state.
void interpreter_ended() noexcept;
// The same for who ends the process at once: our thread does it, and is waited for as long as a second.
void process_exits_now() noexcept;
// A subscription that is known not to be a foreign tool's.
void expect_subscriber() noexcept;

}  // namespace torchprof::cupti
