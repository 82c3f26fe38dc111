// What a window (window.h) needs of the interpreter: the GIL, calls on and off, and whose step an optimizer's is.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

// Holds the GIL for as long as it lives, on any thread, and keeps a pending exception; nothing where there is no
// interpreter that can be had any more.
class WithGil {
 public:
  WithGil() noexcept;
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  explicit operator bool() const noexcept { return has_; }

 private:
  bool has_ = false;
  bool took_ = false;
  int state_ = 0;
  Object* error_[3] = {};
};

// Calls are recorded, but the interpreter has not started so far that they can be switched: a window waits for it. Not
// again once it has, also when it has ended.
bool is_starting() noexcept;

// Calls are recorded from here on, or no longer; every thread states its stack anew. Take the GIL.
void window_opened() noexcept;
void window_closed() noexcept;

// The optimizer whose step() the calling thread is in, as an address alone; nullptr: none is to be found. Takes the
// GIL.
Object* current_optimizer() noexcept;

}  // namespace torchprof::python
