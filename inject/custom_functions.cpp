#include "inject/custom_functions.h"

#include "inject/method_table.h"
#include "tracer/python/arguments.h"
#include "tracer/session.h"
#include "tracer/torch/operators.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::Object;

// [M] 2.6.0, 2.14.1; [S] 2.0. On a torch whose layout is not known no inputs are read at all (tracer/torch/reading.h).
constexpr unsigned kFirstWithTypes = 200;

VarArgs g_apply = nullptr;                 // [M] 2.6.0
Keywords g_apply_with_keywords = nullptr;  // [M] 2.14.1

void begin(Object* function, Object* arguments, Object* keywords) noexcept {
  if (ThreadBuffer* buffer = session::current_buffer()) python::applied_on(*buffer) = {function, arguments, keywords};
}

// Clears it again: the call may end before an operator has used it.
Object* end(Object* result) noexcept {
  if (t_buffer) python::applied_on(*t_buffer) = {};
  return result;
}

Object* apply(Object* function, Object* arguments) {
  begin(function, arguments, nullptr);
  return end(g_apply(function, arguments));
}

Object* apply_with_keywords(Object* function, Object* arguments, Object* keywords) {
  begin(function, arguments, keywords);
  return end(g_apply_with_keywords(function, arguments, keywords));
}

}  // namespace

void look_for_custom_functions(Object* module) noexcept {
  static OnceATurn once;
  if (once.is_done() || !api().plain_build || !session::config().ops || !session::config().shapes) return;
  if (torch::version() < kFirstWithTypes || !is_named(module, "torch._C")) return;
  const python::Ref functions(api().get_attr(module, "_FunctionBase"));
  python::Ref tensors(api().get_attr(module, "TensorBase"));
  if (!tensors) tensors.reset(api().get_attr(module, "_TensorBase"));  // to 2.0
  api().error_clear();
  if (!functions || !tensors) return;
  python::know_tensor_type(tensors.release());
  once.done();
  constexpr int kFlags = python::kMethVarArgs | python::kMethClass;
  const bool found =
      put_behind(functions.get(), "apply", kFlags, &apply, g_apply) ||
      put_behind(functions.get(), "apply", kFlags | python::kMethKeywords, &apply_with_keywords, g_apply_with_keywords);
  if (!found)
    session::note_source("custom functions", SourceState::kFailed, "tensors only: apply() of this torch is not known");
}

}  // namespace torchprof::inject
