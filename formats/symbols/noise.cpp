#include "formats/symbols/noise.h"

#include <algorithm>

namespace torchprof::formats {
namespace {

// aten/src/ATen/{record_function.cpp,core/{boxing,dispatch}}, torchgen/gen.py; 1.13 to 2.14.
constexpr std::string_view kDispatch[] = {
    "at::RecordFunction::",
    "at::redispatch::",
    "c10::BoxedKernel::",
    "c10::Dispatcher::",
    "c10::KernelFunction::",
    "c10::OperatorHandle::",
    "c10::TypedOperatorHandle<",
    "c10::detail::CaptureKernelCall<",
    "c10::impl::BoxedKernelWrapper<",
    "c10::impl::call_functor_with_args_from_stack",
    "c10::impl::detail::WrapFunctionIntoFunctor_<",
    "c10::impl::make_boxed_from_unboxed_functor<",
    "c10::impl::wrap_kernel_functor_",
};
// torch/csrc/autograd/generated/python_*.cpp, torch/csrc/utils/python_arg_parser.h, THP*: torch/csrc; 1.13 to 2.14.
// torch/csrc/dynamo/eval_frame{.c,_cpp.cpp}: "dynamo_eval_custom_code"; 2.1 to 2.14.
constexpr std::string_view kBindings[] = {
    "THP",
    "dynamo_",
    "torch::FunctionSignature::",
    "torch::PythonArg",
    "torch::PythonParser",
    "torch::utils::",
    "torch::autograd::THP",
    "torch::autograd::utils::",
    "torch::handle_torch_function",
};

// torch/csrc/jit/{api,runtime}; 1.13 to 2.14.
constexpr std::string_view kScript[] = {
    "torch::jit::DifferentiableGraphOp::",
    "torch::jit::Function::",
    "torch::jit::GraphExecutor",
    "torch::jit::GraphFunction::",
    "torch::jit::InterpreterState",
    "torch::jit::Method::",
    "torch::jit::ProfilingGraphExecutorImpl::",
    "torch::jit::SimpleGraphExecutorImpl::",
    "torch::jit::(anonymous namespace)::DifferentiableGraphOp::",
};

bool begins_with_one(std::string_view name, const std::string_view* first, const std::string_view* last) {
  return std::any_of(first, last, [&](std::string_view begin) { return name.starts_with(begin); });
}

// "c10::Dispatcher::call<...>" of "at::Tensor c10::Dispatcher::call<...>(...) const".
std::string_view name_in(std::string_view function) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (function.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
    } else if (c == '(' && depth == 0) {
      return function.substr(begin, i - begin);
    } else if (c == '<' || c == '(' || c == '{' || c == '[') {
      ++depth;
    } else if (c == '>' || c == ')' || c == '}' || c == ']') {
      --depth;
    } else if (c == ' ' && depth == 0) {
      begin = i + 1;
    }
  }
  return function.substr(begin);
}

}  // namespace

bool is_interpreter(std::string_view object) {
  return object.starts_with("python3") || object.starts_with("libpython3");
}

NativeNoise noise_of(std::string_view object, std::string_view function) {
  if (is_interpreter(object)) return NativeNoise::kInterpreter;
  const std::string_view name = name_in(function);
  if (begins_with_one(name, std::begin(kDispatch), std::end(kDispatch)) ||
      (name.starts_with("at::_ops::") && name.ends_with("::redispatch")))
    return NativeNoise::kDispatch;
  // Without symbols the interpreter of TorchScript cannot be told from other code of its library, so all of it counts
  // as kScript. That is safe: such a frame is folded only where it calls a function of TorchScript.
  if (begins_with_one(name, std::begin(kScript), std::end(kScript)) ||
      (name.empty() && object.starts_with("libtorch_cpu.")))
    return NativeNoise::kScript;
  const bool is_bindings = object.starts_with("libtorch_python.") &&
                           (name.empty() || begins_with_one(name, std::begin(kBindings), std::end(kBindings)) ||
                            name.find("::THPVariable_") != name.npos);
  return is_bindings || name.starts_with("pybind11::") ? NativeNoise::kInterpreter : NativeNoise::kNone;
}

}  // namespace torchprof::formats
