// Identity of what Python calls are made of: code objects, and the nn.Modules and optimizers whose calls are told apart.
//
// An id lives exactly as long as its object. A code object carries its id in its own co_extra slot, which dies with it; a module or
// optimizer is watched by a weak reference. So an address that is used again never gets a dead object's name.
//
// Threads: all with the GIL held. No Python code runs in here; a pending exception is kept.
#pragma once

#include "tracer/ids.h"
#include "tracer/python_abi.h"
#include "tracer/record.h"
#include "tracer/session.h"

namespace torchprof::python {

struct Function {
  FunctionId id;
  FunctionKind kind = FunctionKind::kFunction;
};

namespace detail {
extern Size g_extra;  // our index among the co_extra slots
Function define_function(Object* code) noexcept;
}  // namespace detail

// Once, before the rest. False: no co_extra slot is free.
bool prepare_objects() noexcept;

// Hot: one call into the interpreter and a compare.
inline Function function_of(Object* code) noexcept {
  void* extra = nullptr;
  api().get_extra(code, detail::g_extra, &extra);
  const auto bits = reinterpret_cast<uintptr_t>(extra);
  if (bits) [[likely]] return {FunctionId{static_cast<uint32_t>(bits >> 2)}, static_cast<FunctionKind>(bits & 3)};
  return detail::define_function(code);
}

// The module or optimizer whose call `frame` is, by the kind of its function; none if it cannot be told.
ObjectId object_of(Frame* frame, FunctionKind kind) noexcept;

}  // namespace torchprof::python
