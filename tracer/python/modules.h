// Identity of the nn.Modules and optimizers whose calls are told apart, and where a module stands in its model.
//
// An id lives exactly as long as its object, which is watched by a weak reference: an address that is used again never
// gets a dead object's name, and nothing is kept alive.
//
// Paths are those of named_modules(). A module that is called from outside any other is a root: its tree is walked at
// that call, through the `_modules` of the instances' own dictionaries, and every module in it gets its path and what
// it holds is recorded (details.h). A module that is met twice keeps its first path. One that was a root itself
// and turns out to be part of a larger one gets its path there. A module that was added later is found by walking again
// from the modules on the stack when it is called; one that no other holds is a root of its own. Once more is a root's
// tree walked at its first call after an optimizer's step: gradients exist then. An optimizer is recorded at its first
// and at its second step: its state exists then.
//
// Bounds: kMaxModules in a walk, kMaxWasted visits in all walks that did not find what they looked for.
//
// Threads: all with the GIL held. No Python code of the program runs in here, not even the garbage collector's; a
// pending exception is kept.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/record.h"

namespace torchprof::python {

inline constexpr size_t kMaxModules = 100'000;
inline constexpr size_t kMaxWasted = 1'000'000;
inline constexpr size_t kMaxPath = 1024;  // bytes; modules deeper than that have no path

// The module or optimizer whose call `frame` is, by the kind of its function; none if it cannot be told.
ObjectId object_of(Frame* frame, FunctionKind kind) noexcept;

// The first argument, `self`, of any method that has just begun or is about to end; borrowed from the frame.
Object* self_in(Frame* frame) noexcept;
// The optimizer in a frame of FunctionKind::kOptimizerStep; borrowed. nullptr: it cannot be told.
Object* optimizer_in(Frame* frame) noexcept;

}  // namespace torchprof::python
