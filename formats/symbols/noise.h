// Frames of native stacks that say how a call got there, not what was called: what is folded unless all are wanted.
#pragma once

#include <cstdint>
#include <string_view>

namespace torchprof::formats {

enum class NativeNoise : uint8_t {
  kNone,
  kDispatch,     // torch's dispatcher, its boxing and redispatching, and at::RecordFunction, which calls the recorder
  kInterpreter,  // CPython's own functions, and torch's and pybind11's bindings: functions of Python stand in their
                 // place
  kScript,       // torch's interpreter of TorchScript, whose functions stand in its place
};

// `object`: the base name of the file that the code is in. `function`: demangled, with its return type and arguments as
// far as it has them; empty: not known.
NativeNoise noise_of(std::string_view object, std::string_view function);

bool is_interpreter(std::string_view object);  // python3.11, libpython3.11.so.1.0

}  // namespace torchprof::formats
