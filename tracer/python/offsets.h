// Where the fields of this interpreter's structures lie: the one place that tells one version of CPython from another.
//
// 3.10 to 3.12: tables, by version. From 3.13 on the interpreter says it: _PyRuntime begins with _Py_DebugOffsets,
// which CPython made for debuggers that look from outside. That structure has no description of its own, and grew in
// its middle from 3.13 to 3.14 and to 3.15. So no version of it is assumed: each section is found by what the API says
// of the sizes in it. What is not in it is found in the process as well: co_extra by what a mark changes (code.cpp),
// gc.callbacks by its address (gc.cpp).
//
// Nothing here is believed before it has been compared with the API: check_objects() at once, check_frames() (frames.h)
// and prepare_stacks() (threads.h) when calls start. A version that is newer than this one knows is used where all of
// that holds, and refused where any of it does not.
//
// Source: CPython, Include/internal/pycore_{runtime,debug_offsets,frame,interpframe_structs,interp,gc}.h,
// Include/cpython/{pystate,frameobject,code}.h; measured on 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0, 3.13.5, 3.14.10
// and 3.15.2. Threads: with the GIL held; what is found does not change any more.
#pragma once

#include <cstddef>

#include "tracer/python/abi.h"

namespace torchprof::python {

inline constexpr int kOldestMinor = 10, kNewestMinor = 15;

// Thread states, frames, code and texts, for frames.h and for the stacks of other threads.
struct FrameLayout {
  size_t current;      // PyThreadState: frame (3.10), cframe (3.11, 3.12), current_frame (3.13 on)
  bool by_cframe;      // `current` is a CFrame, which has the frame
  size_t of_cframe;    // CFrame.current_frame
  size_t code;         // of the frame: f_code, f_executable (3.13 on; 3.14 tags the lowest bits)
  size_t instruction;  // of the frame, the one that runs: f_lasti (3.10, an int), prev_instr, instr_ptr (3.13 on)
  size_t first;        // PyCodeObject.co_code_adaptive; 0: `instruction` is a number of code units
  size_t previous;     // of the frame: f_back (3.10), previous
  // A run of the loop has a CFrame on the native stack (up to 3.11), or a frame of its own among the Python frames.
  size_t cframe;    // PyThreadState.cframe; 0: 3.12 on
  size_t outer;     // CFrame.previous
  size_t is_entry;  // of the frame: a bool (3.11), true for a run's outermost; 0: every run has one frame (3.10)
  size_t owner;     // of the frame: a char (3.11 on), see kOwnedByLoop
  // What a thread needs that looks at the others (describe_stacks).
  size_t threads;     // PyInterpreterState: the first thread; 0: the rest is not known
  size_t tid;         // PyThreadState.native_thread_id
  size_t line;        // PyCodeObject.co_firstlineno
  size_t ascii_text;  // sizeof(PyASCIIObject), where the characters of a str of ASCII begin
  size_t other_text;  // sizeof(PyCompactUnicodeObject), likewise of any other
  // The same in all that are known, from 3.11 on.
  size_t next_thread = 8, of_thread = 16;          // PyThreadState.next and interp
  size_t code_units = 16;                          // PyCodeObject.ob_size
  size_t file = 112, qualname = 128, lines = 136;  // PyCodeObject: co_filename, co_qualname, co_linetable
  size_t text_length = 16, text_state = 32;        // PyASCIIObject
  size_t bytes_length = 16, bytes_data = 32;       // PyBytesObject: ob_size, ob_sval
};
// The loop's own frame: FRAME_OWNED_BY_CSTACK (3.12, 3.13), FRAME_OWNED_BY_INTERPRETER (3.14 on). In 3.14 a higher
// value is FRAME_OWNED_BY_CSTACK, which is no function's frame either.
inline constexpr unsigned char kOwnedByLoop = 3;

// PyInterpreterState.ceval of 3.11: {int recursion_limit; int eval_breaker; ...}. inject/python_signals.cpp compares
// the first with Py_GetRecursionLimit() before it uses the second.
inline constexpr size_t kRecursionLimit311 = 96, kEvalBreaker311 = 100;

// Where PyInterpreterState may have the pointer to gc.callbacks: from `begin` on, before `end`.
struct CallbacksPlace {
  size_t begin, end;
};

// Fills what follows. By load(), once, after the API is known.
void find_offsets() noexcept;

// nullptr: not known; why_no_frames() says why, in words that follow "Python 3.15.2: ".
const FrameLayout* frame_layout() noexcept;
const char* why_no_frames() noexcept;
// For profile functions, by the version alone; nullptr: not 3.10 or 3.11.
const Layout* profile_layout() noexcept;
// Empty: not known.
CallbacksPlace callbacks_place() noexcept;

// Compares what abi.h reads of objects with what the API says of them. nullptr: it is so; otherwise what is not, in
// words that follow "Python 3.16.0: ".
const char* check_objects() noexcept;

// Whether this version of torchprof was made and tried with the interpreter's.
inline bool is_known_version() noexcept { return api().minor <= kNewestMinor; }

}  // namespace torchprof::python
