// What we have put in the place of the program's own functions: entries of method tables, and of the tables through
// which objects call what they import. It is noted as it is made, so that a program that we leave gets it back.
//
// With the GIL held, or while nobody else replaces anything. Nothing is lost where there is no room for a note: that
// place is not given back, and calls go on through a function of ours that does nothing.
#pragma once

#include "tracer/session.h"

namespace torchprof::inject {

// Something that is done once in each turn of the session.
class OnceATurn {
 public:
  bool is_done() const noexcept { return done_in_ == session::turn(); }
  void done() noexcept { done_in_ = session::turn(); }

 private:
  int done_in_ = -1;
};

// `place` held `theirs` and holds `ours` from now on. The same place may be noted again.
void note_place(void** place, void* ours, void* theirs) noexcept;
// Imports of any object that held `theirs` hold `ours`.
void note_import(void* ours, void* theirs) noexcept;

// Everything that still holds ours holds theirs again; what somebody else has replaced since stays as it is. The notes
// are gone.
void give_back_places() noexcept;

}  // namespace torchprof::inject
