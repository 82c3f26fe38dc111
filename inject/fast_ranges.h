// Ranges that torch records only while torch.profiler is on: torch._C._profiler._RecordFunctionFast (2.1 and later),
// which inductor, Triton's launcher and torch.compile put around what they do.
//
// It asks ProfilerStateBase::get() (getTLS() since 2.14) whether a profiler is on. Only then it makes an
// at::RecordFunction, which global callbacks see. We redirect libtorch_python's import of that function to one of ours.
// Ours returns what torch returns, and where that is "no profiler", a pointer to nothing in particular, which is only
// compared with nullptr. In libtorch_python only _RecordFunctionFast calls the function
// (torch/csrc/profiler/python/init.cpp; measured on 2.6.0, 2.14.1 and 2.15.0). Of a later torch the code itself has to
// show that the pointer is only compared (processor/call_sites.h), or it is not redirected. Nothing else is redirected:
// torch.profiler, in libtorch_cpu, sees what it would see without us.
//
// The begin and the end of a range must get the same answer, or an assertion of torch ends the program. So the
// redirection is made once, right after libtorch_python was loaded, and stays; where torch was in the process before us
// it is not made. It costs the program the making of the record, 0.1 to 0.4 us per range.
//
// A Python variable, torch.autograd.profiler._is_profiler_enabled, also decides whether some of these ranges are made:
// that of each launch of a Triton kernel (2.6, 2.14) and of each call of compiled code (2.14: prologue of the runtime
// wrapper, pregraph bytecode, inductor's "Call CompiledFxGraph"). We leave it as the program has it. If it were set, a
// call of compiled code (18 us on 2.14.1) would take 2 to 4 us longer, inductor would not use its cached launcher for
// kernels, and torch.profiler itself would unset it when it stops.
//
// Inputs of these ranges are recorded only while torch.profiler records shapes, since libtorch_cpu is asked for that.
#pragma once

namespace torchprof::inject {

// When capture of Python starts, before the first reach_fast_ranges(). With the GIL held.
void prepare_fast_ranges() noexcept;

// After an extension module has been loaded, and after torch::attach_if_loaded(). Cheap; with the GIL held.
void reach_fast_ranges() noexcept;

}  // namespace torchprof::inject
