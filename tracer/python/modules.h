// Identity of nn.Modules and optimizers, and the path of a module in its model.
//
// An id lives exactly as long as its object, which a weak reference watches: an address that is used again never gets a
// dead object's name, and nothing is kept alive.
//
// Paths are those of named_modules().
//   * A module that is called from outside any other is a root. At that call its tree is walked, through `_modules` in
//     the instances' own dictionaries: every module in it gets its path, and what it holds is recorded (details.h).
//   * A module that is met twice keeps its first path. A root that turns out to be part of a larger one gets its path
//     there.
//   * A module that was added later is found when it is called, by walking again from the modules on the stack. One
//     that no other holds is a root of its own.
//   * A root's tree is walked once more at its first call after an optimizer's step, because gradients exist by then.
//   * An optimizer is recorded at its first step, and at its second, when its state exists.
//
// Bounds: kMaxModules in a walk, kMaxWasted visits in all walks that did not find what they looked for.
//
// Threads: all functions need the GIL. No Python code of the program runs in here, also not through the garbage
// collector; a pending exception is kept.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/record.h"
#include "tracer/window.h"

namespace torchprof::python {

inline constexpr size_t kMaxModules = 100'000;
inline constexpr size_t kMaxWasted = 1'000'000;
inline constexpr size_t kMaxPath = 1024;  // bytes; modules with a longer path have none

// The module or optimizer that `frame` is a call of; `kind` is that of its function. None: not known.
ObjectId object_of(Frame* frame, FunctionKind kind) noexcept;

// The first local of `frame`, the argument `name`; borrowed from the frame. nullptr: not known.
Object* first_local(Frame* frame, const char* name) noexcept;
// The first argument, `self`, of any method that has just begun or is about to end; borrowed from the frame.
Object* self_in(Frame* frame) noexcept;
// Whose step ends with a frame of FunctionKind::kOptimizerStep, also where calls are not recorded. To be called once at
// each end. An optimizer that has replaced one that no longer exists (with the same first parameter) goes on with the
// steps of that one: so a program that makes its optimizer anew has the same steps as one that keeps it.
window::Stepper stepper_in(Frame* frame) noexcept;

}  // namespace torchprof::python
