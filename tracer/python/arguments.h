// The arguments of an autograd Function that is written in Python, as torch.profiler shows them.
//
// torch gives at::RecordFunction the tensors among the arguments of `Function.apply(...)`. The others it converts only
// while torch.profiler records shapes, from 2.0 on (unpack_input() in torch/csrc/autograd/python_function.cpp), and for
// nobody else. So they are taken from the call itself, by the same rules: None, truth values, numbers, and tuples,
// dictionaries and lists of them whose elements are of one type (tryToInferPrimitiveType() in
// torch/csrc/jit/python/pybind_utils.h, 2.0 to 2.14; measured on 2.6.0 and 2.14.1, 1.13.1 converts none). Anything
// else, strings and objects, torch leaves out, and so do we. A list that is longer than kMostElements is taken to go on
// as it begins; where torch would refuse a number that is too large, and stop the program, it is one without a value.
// Keywords and defaults stand where forward() names them (2.14 does that behind apply(), before in Python).
//
// Plain builds of CPython alone. Nothing of the program is run; classes and functions are asked by way of
// their types alone.
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

// Once, with the GIL held: the type of all tensors, which lives as long as the interpreter.
void know_tensor_type(Object* type) noexcept;

inline constexpr size_t kMostPlainValues = 128;

// Those of the arguments that torch.profiler would have, in order. The number of them; 0 where the operator `name` with
// `tensors` inputs is not this call's or has all of them already, as under torch.profiler, and where there are more
// than kMostPlainValues. The calling thread has the GIL: it is inside of the call.
size_t plain_arguments(const Applied& applied, const char* name, size_t tensors,
                       torch::PlainValue (&out)[kMostPlainValues]) noexcept;

}  // namespace torchprof::python
