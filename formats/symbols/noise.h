// Which frames of native stacks say how a call got there, not what was called. They are folded unless all are wanted.
#pragma once

#include <cstdint>
#include <string_view>

namespace torchprof::formats {

enum class NativeNoise : uint8_t {
  kNone,
  kDispatch,     // torch's dispatcher, its boxing and redispatching, and at::RecordFunction, which calls the recorder
  kInterpreter,  // CPython's functions, torch's and pybind11's bindings; the stack has functions of Python instead
  kScript,       // torch's interpreter of TorchScript; the stack has functions of TorchScript instead
};

// `object`: the base name of the file that the code is in. `function`: the demangled name, with return type and
// arguments if it has them; empty: not known.
NativeNoise noise_of(std::string_view object, std::string_view function);

bool is_interpreter(std::string_view object);  // python3.11, libpython3.11.so.1.0

}  // namespace torchprof::formats
