// Adds a step before or after a built-in function or method of another module, through its method table (PyMethodDef,
// stable ABI): the function object stays the same, with its name, docstring and signature.
#pragma once

#include <cstring>

#include "inject/late/replaced.h"
#include "tracer/python/abi.h"

namespace torchprof::inject {

// C signatures, by the flags: METH_NOARGS, METH_O, METH_VARARGS, METH_VARARGS | METH_KEYWORDS, METH_FASTCALL.
using NoArgs = python::Object* (*)(python::Object* self, python::Object* none);
using OneArg = python::Object* (*)(python::Object* self, python::Object* arg);
using VarArgs = python::Object* (*)(python::Object* self, python::Object* args);
using Keywords = python::Object* (*)(python::Object* self, python::Object* args, python::Object* keywords);
using FastArgs = python::Object* (*)(python::Object* self, python::Object* const* args, python::Size count);
// METH_FASTCALL | METH_KEYWORDS
using FastKeywords = python::Object* (*)(python::Object* self, python::Object* const* args, python::Size count,
                                         python::Object* names);

// Whether this is the module's `__name__`. With the GIL held.
inline bool is_named(python::Object* module, const char* name) noexcept {
  using python::api;
  const python::Ref own(api().get_attr(module, "__name__"));
  const char* text = own ? api().utf8(own.get(), nullptr) : nullptr;
  api().error_clear();
  return text && strcmp(text, name) == 0;
}

// Replaces the function `name` of `owner`, a module or a type, by `ours`; `theirs` becomes the original, which `ours`
// has to call. `F` is the signature that `flags` stand for. With the GIL held. False: `owner` has no such function with
// these flags.
template <class F>
bool put_behind(python::Object* owner, const char* name, int flags, F ours, F& theirs) noexcept {
  using python::api;
  const python::Ref function(owner ? api().get_attr(owner, name) : static_cast<python::Object*>(nullptr));
  python::Object* type = function ? python::type_of(function.get()) : nullptr;
  api().error_clear();
  python::MethodDef* definition = type == api().function_type            ? python::function_def(function.get())
                                  : type == api().method_descriptor_type ? python::descriptor_def(function.get())
                                                                         : nullptr;
  if (!definition || definition->flags != flags || strcmp(definition->name, name) != 0) return false;
  if (definition->function == reinterpret_cast<void*>(ours)) return true;
  theirs = reinterpret_cast<F>(definition->function);
  definition->function = reinterpret_cast<void*>(ours);
  note_place(&definition->function, definition->function, reinterpret_cast<void*>(theirs));
  return true;
}

}  // namespace torchprof::inject
