// Ranges that torch records only while torch.profiler is on: torch._C._profiler._RecordFunctionFast (2.1 and later),
// which inductor, Triton's launcher and torch.compile put around what they do.
//
// It asks ProfilerStateBase::get() (getTLS() in 2.14) whether a profiler is on, and makes an at::RecordFunction, which
// global callbacks see, only if one is. The imports of that function in libtorch_python are pointed to a function of
// ours, which says what torch says, or "one is" where torch says that none is; nobody looks at what it points to. All
// calls that libtorch_python makes are _RecordFunctionFast's (torch/csrc/profiler/python/init.cpp; measured on 2.6.0
// and 2.14.1), and nothing else is redirected: torch.profiler, in libtorch_cpu, sees what it would see.
//
// Entering and leaving a range must get the same answer, or an assertion of torch stops the program: the redirection is
// made once, right after libtorch_python was loaded, and stays. Where torch was in the process before us it is not
// made. What it costs the program is the record, 0.1 to 0.4 us a range.
//
// torch.autograd.profiler._is_profiler_enabled, a variable of Python, decides besides whether some of these ranges are
// made at all: that of each launch of a Triton kernel (2.6, 2.14) and of each call of compiled code (2.14: prologue of
// the runtime wrapper, pregraph bytecode, inductor's "Call CompiledFxGraph"). It is left as the program has it: set, it
// makes each call of compiled code 2 to 4 us slower (2.14.1, 18 us without it), takes inductor's cached launcher away
// from kernels, and torch.profiler itself unsets it when it stops.
//
// Inputs of these ranges are recorded only while torch.profiler records shapes: that is asked of libtorch_cpu.
#pragma once

namespace torchprof::inject {

// When capture of Python starts, before the first reach_fast_ranges(). With the GIL held.
void prepare_fast_ranges() noexcept;

// After an extension module has been loaded and torch::attach_if_loaded(). Cheap, with the GIL held.
void reach_fast_ranges() noexcept;

}  // namespace torchprof::inject
