// The Python frames of the calling thread, grouped by the runs of the interpreter's loop that execute them. In a native
// stack they take the place of the loop's frame.
//
//     FrameWalk walk;
//     while (walk.loop() != 0)                             // 0: there is no run further out
//       for (Position at; walk.next(at);) ...              // innermost first, up to the outermost of this run
//
// Each run keeps something in its own native frame. That tells which native frame runs which Python frames, however the
// loop was compiled (with hot and cold parts apart, or with tail calls).
//
// A thread's frames do not change while it is in C code, whoever holds the GIL: only the thread itself pushes and pops
// them, and a frame keeps its code object alive. We read the thread's state, its frames, their code and instruction,
// our mark on the code (code.h) and the code's table of lines; no other thread changes any of these. Offsets are those
// of release builds with a GIL, and are used only after check_frames() has compared them with the API.
#pragma once

#include <cstdint>

#include "tracer/python/abi.h"
#include "tracer/spool/record.h"

namespace torchprof::python {

inline constexpr intptr_t kCodeUnit = 2;  // bytes, sizeof(_Py_CODEUNIT)

struct FrameLayout;

struct Position {
  Object* code = nullptr;  // borrowed; nullptr: a frame without code
  int offset = -1;         // of the instruction that runs, in bytes
};

// Compares the offsets (offsets.h) with the API; where they do not hold, nothing below finds anything. nullptr: they
// do; otherwise what does not, in words that follow "Python 3.15.2: ". Once, called from Python code with the GIL held,
// after prepare_objects(). It trusts them: where the version is not a known one, prepare_stacks() comes first.
const char* check_frames() noexcept;

// What another thread, or another process, needs to walk the stacks of this interpreter by their memory alone. Nothing
// (`interpreter` 0): no layout is known, or it is that of 3.10, which does not say a thread's number. With the GIL
// held.
InterpreterDef describe_stacks() noexcept;

// The position of the innermost frame. Any thread, with or without the GIL; no allocation, no lock.
Position current_position() noexcept;

// That of the frame that called the current one, which has just begun and runs `code`; `frame`: the current one, on
// 3.10 and 3.11. With the GIL held.
Position caller_position(Object* code, const Frame* frame) noexcept;
// That of a frame, whose code is given. With the GIL held.
Position position_in(Frame* frame, Object* code) noexcept;

// Any thread, with or without the GIL.
class FrameWalk {
 public:
  // Has no runs where none can be read.
  FrameWalk() noexcept;
  FrameWalk(const FrameLayout* layout, ThreadState* self) noexcept;

  // An address within the native frame of the innermost run that has not been walked to its end.
  uintptr_t loop() const noexcept { return reinterpret_cast<uintptr_t>(loop_); }
  // False at the end of a run; the next call begins the next one.
  bool next(Position& position) noexcept;

 private:
  void find_loop() noexcept;

  const FrameLayout* at_ = nullptr;
  const void* frame_ = nullptr;  // the one that comes next
  const void* loop_ = nullptr;   // what the run keeps: a CFrame (3.10, 3.11), a frame (3.12 on)
  bool has_ended_ = false;       // the run is at its end (3.10, 3.11)
};

}  // namespace torchprof::python
