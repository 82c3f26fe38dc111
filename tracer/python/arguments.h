// The arguments of an autograd Function that is written in Python, as torch.profiler shows them.
//
// torch gives at::RecordFunction only the tensors among the arguments of `Function.apply(...)`. It converts the others
// only while torch.profiler records shapes, from 2.0 on (unpack_input() in torch/csrc/autograd/python_function.cpp). So
// we take them from the call itself, by the same rules: None, truth values, numbers, and tuples, dictionaries and lists
// of them whose elements have one type (tryToInferPrimitiveType() in torch/csrc/jit/python/pybind_utils.h, 2.0 to 2.14;
// measured on 2.6.0 and 2.14.1; 1.13.1 converts none). torch leaves out anything else (strings, objects), and so do we.
// Two differences: of a list longer than kMostElements only the beginning is looked at; a number that is too large,
// which torch would refuse with an exception, becomes an argument without a value. Keywords and defaults are put where
// forward() names them (2.14 does that after apply(), earlier versions in Python).
//
// Only on plain builds of CPython. No code of the program runs: classes and functions are read through their types.
#pragma once

#include <cstddef>

#include "tracer/objects/values.h"
#include "tracer/python/abi.h"
#include "tracer/thread_buffer.h"

namespace torchprof::python {

// The call of an autograd Function whose operator comes next on this thread. Set before the call and taken away after
// it (inject/custom_functions.h); whoever records the operator takes it too.
struct Applied {
  static constexpr Part kPart = Part::kPythonCall;
  Object* function;   // a class of Python
  Object* arguments;  // a tuple, borrowed from the call; nullptr: there is no call
  Object* keywords;   // a dictionary, or nullptr
};
inline Applied& applied_on(ThreadBuffer& buffer) noexcept { return buffer.sources.part<Applied>(); }

// Sets the base type of all tensors, which lives as long as the interpreter. Once, with the GIL held.
void know_tensor_type(Object* type) noexcept;

inline constexpr size_t kMostPlainValues = 128;

// The arguments that torch.profiler would show, in order. Returns how many; 0: the operator `name` with `tensors`
// inputs does not belong to this call, or it has all arguments already (as under torch.profiler), or there are more
// than kMostPlainValues. The calling thread has the GIL: it is inside the call.
size_t plain_arguments(const Applied& applied, const char* name, size_t tensors,
                       torch::PlainValue (&out)[kMostPlainValues]) noexcept;

}  // namespace torchprof::python
