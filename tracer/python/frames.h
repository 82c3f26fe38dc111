// The frames of Python that the calling thread runs, by the runs of the interpreter's loop that execute them: what
// stands in a native stack in the place of the loop's frame.
//
//     FrameWalk walk;
//     while (walk.loop() != 0)                             // 0: there is no run further out
//       for (Position at; walk.next(at);) ...              // innermost first, until the run's outermost
//
// Each run keeps something in its own native frame, by which it is known which native frame runs what, however the loop
// was compiled (apart hot and cold, or with tail calls).
//
// A thread's own frames stand still while it is in C code, whoever holds the GIL: only the thread itself pushes and
// pops them, and a frame keeps its code object. What is read is the thread's state, its frames, their code and
// instruction, our mark on the code (code.h) and the code's table of lines, all of which no other thread
// changes. Offsets are those of release builds with a GIL, used only after check_frames() has compared them with the
// API.
#pragma once

#include <cstdint>

#include "tracer/python/abi.h"

namespace torchprof::python {

struct FrameLayout;

struct Position {
  Object* code = nullptr;  // borrowed; nullptr: a frame without code
  int offset = -1;         // of the instruction that runs, in bytes
};

// Once, with the GIL held, called from Python code and after prepare_objects(). Where the offsets do not hold nothing
// is found.
void check_frames() noexcept;

// Of the innermost frame. Any thread, with or without the GIL; no allocation, no lock.
Position current_position() noexcept;

// Any thread, with or without the GIL.
class FrameWalk {
 public:
  // Without runs where none can be read.
  FrameWalk() noexcept;
  FrameWalk(const FrameLayout* layout, ThreadState* self) noexcept;

  // An address within the native frame of the loop's innermost run that is not done with.
  uintptr_t loop() const noexcept { return reinterpret_cast<uintptr_t>(loop_); }
  // False at the end of a run; the next call begins the next one.
  bool next(Position& position) noexcept;

 private:
  void find_loop() noexcept;

  const FrameLayout* at_ = nullptr;
  const void* frame_ = nullptr;  // that comes next
  const void* loop_ = nullptr;   // a CFrame (3.10, 3.11), a frame (3.12 on)
  bool has_ended_ = false;       // the run (3.10, 3.11)
};

}  // namespace torchprof::python
