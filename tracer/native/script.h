// The TorchScript functions that the calling thread's interpreter runs, with their lines. In a native stack they take
// the place of the interpreter's frames.
//
// torch itself is asked, by the functions from which torch.profiler has its "Call stack" (with_stack). They allocate
// and take no lock, and are called only for a stack that has an interpreter. What they return is read and freed by the
// layouts of the standard library, for either kind of std::string. Each answer is checked before it is used; the first
// that is not as expected ends this source, with one line on stderr.
//
// Sources: torch/csrc/jit/runtime/interpreter.{h,cpp}, jit/frontend/source_range.h, profiler/util.h, 1.13 to 2.15.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/native/frame.h"
#include "tracer/objects/abi.h"
#include "tracer/spool/ids.h"

namespace torchprof::torch {

// Starts the source, and notes in the trace whether that worked. Once, when torch is in the process, not while the
// loader's lock is held.
void find_script(const Api& api) noexcept;

// The code that runs an interpreter until it is done (InterpreterStateImpl::run, or what it was put into): a stack has
// one such frame for each interpreter. Empty: it is not known, or there are no lines to be had.
native::CodeRange script_run() noexcept;
// Whether the return address `inner` is in the interpreter's loop. `run` is a return address in script_run(); the loop
// is the function that is called right before it.
bool is_script_loop(uintptr_t run, uintptr_t inner) noexcept;

struct ScriptLine {
  FunctionId function;
  uint32_t line;
};
// The lines of the thread's innermost interpreter, innermost first. Returns how many; 0: the thread runs no
// interpreter. Allocates.
size_t script_lines(ScriptLine* lines, size_t room) noexcept;

namespace detail {
// Tests set what torch exports.
struct Vector {  // std::vector of anything
  char* begin = nullptr;
  char* end = nullptr;
  char* capacity = nullptr;
  Vector() = default;
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  ~Vector() {}  // "= default" would be trivial, and then it would not be returned in memory
};
struct ScriptApi {
  Vector (*current)() = nullptr;               // torch::jit::currentCallstack()
  Vector (*prepare)(const Vector&) = nullptr;  // torch::profiler::impl::prepareCallstack()
  void (*free)(void*) = nullptr;               // operator delete, as torch finds it
  size_t string = 0;                           // sizeof(std::string)
};
void use_script(const ScriptApi& api) noexcept;
}  // namespace detail

}  // namespace torchprof::torch
