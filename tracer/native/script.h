// The functions of TorchScript that the calling thread's interpreter runs, and their lines: what stands in a native
// stack in the place of the interpreter's frames.
//
// torch itself is asked, by the functions that give torch.profiler its "Call stack" (with_stack): they allocate and
// take no lock. Neither is called where a stack has no interpreter. What they return is read and given back by the
// layouts of the standard library, both of its strings; each answer is looked at before it is used, and the first that
// looks otherwise ends this part, with one line.
//
// Sources: torch/csrc/jit/runtime/interpreter.{h,cpp}, jit/frontend/source_range.h, profiler/util.h, 1.13 to 2.14.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/native/frame.h"
#include "tracer/objects/abi.h"
#include "tracer/spool/ids.h"

namespace torchprof::torch {

// Says so in the trace. Once, when torch is in the process, not under the loader's lock.
void find_script(const Api& api) noexcept;

// The code that runs an interpreter until it is done (InterpreterStateImpl::run): one frame for each. Empty: none is
// known, or the lines cannot be had.
native::CodeRange script_run() noexcept;
// Whether the return address `inner` is in the interpreter's loop, a function that the code before `run`, a return
// address in script_run(), calls.
bool is_script_loop(uintptr_t run, uintptr_t inner) noexcept;

struct ScriptLine {
  FunctionId function;
  uint32_t line;
};
// Of the innermost interpreter, innermost first. Allocates. None: the thread runs none.
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
