// at::RecordFunction -> records: operators, backward functions and user annotations, on every thread, as torch reports
// them.
#pragma once

#include <cstddef>

#include "tracer/objects/abi.h"

namespace torchprof::torch {

// Adds our pair of global callbacks if torch has been loaded into the process since the last call, or since leave().
// Cheap and idempotent; any thread, one at a time.
void attach_if_loaded() noexcept;

// The session is about to be disarmed: no callback of ours is left. With the window closed.
void leave() noexcept;

// Registers torch as a source with the window: outside of it neither operators nor memory run anything of ours.
void follow_window() noexcept;

// One more pair of callbacks, called as ours are. `prepare` is called once, when torch is there; if it returns false,
// the pair is not added.
struct Observer {
  bool (*prepare)() noexcept;
  Context (*start)(const RecordFunction&);
  void (*end)(const RecordFunction&, void*);
};
// Before attach_if_loaded().
void set_observer(const Observer& observer) noexcept;

// What can be read of an operator in its start callback, as far as the search and the checks have got.
struct Look {
  const char* name;
  const Row* row;          // nullptr: nothing but the name
  const ValueRow* values;  // nullptr: no inputs
  size_t num_inputs;       // how many of RecordFunction's inputs are its own: the last ones
};
Look look_at(const RecordFunction& function) noexcept;
// The row, also in an end callback, when the inputs are gone. nullptr: as above.
const Row* known_row() noexcept;

// Of the torch that attach_if_loaded() found: major * 100 + minor; 0: none yet, or unknown. No layout is chosen by it.
unsigned version() noexcept;

}  // namespace torchprof::torch
