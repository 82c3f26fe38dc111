// Imports and the compiler in brief (--imports brief): while a thread imports a module, the functions that run on it
// are not recorded. One span stands for them: `import torch.nn`, a function of FunctionKind::kImport, with the module's
// file. Imports within it are spans of their own, nested as the imports are.
//
// An import is a call of importlib's `_find_and_load` for a module that sys.modules does not have: what `import`,
// `from ... import`, importlib.import_module() and __import__() come to. Where the module is there already nothing is
// an import; nor is what runs a module's code in another way (runpy's `__main__`, exec, reload, a loader's own
// exec_module()): that counts in full. So do other threads.
//
// An import may be the program itself: `python -c "import train"`. So the rule is: an import counts in full from the
// first of
//   * a call of an nn.Module, of an optimizer's step or of torch.profiler's,
//   * the 100th call of a function that comes after a new operator (kMostOps),
//   * the millionth call of a function (kMostCalls)
// on. These are counted without those of imports within it. Of the modules of torch 1.13, sympy, pandas, pytest and
// some 1,800 others the one that makes the most calls makes 97,000; torch 2.6 has one that makes 640,000
// (torch.utils.hipify). From then on its functions are recorded: those that are open begin there. Only that import
// changes: the one around it and the next one within it are in brief.
//
// What torch.compile's compiler calls is in brief as well: a million calls for a function of five lines. One span
// stands for each frame that dynamo compiles, `train.py(12): compile f`, with the file and line of f, and one for each
// graph that inductor compiles, which is compile_fx_inner's own: within that of the frame, or in the first backward.
// None of these ever counts in full, nor does an import within one. What runs the compiled code is recorded as any
// function.
//
// Operators, allocations, collections of garbage and what functions tell of threads, workers and process groups are
// recorded as always. A call in brief costs the interpreter's hook and some loads of ours.
//
// Threads: all functions need the GIL, and write the calling thread's own records. No Python code of the program runs
// in here; a pending exception is kept. Further interpreters import in full.
#pragma once

#include "tracer/python/events.h"

namespace torchprof::python {

inline constexpr uint32_t kMostOps = 100;
inline constexpr uint32_t kMostCalls = 1'000'000;
inline constexpr size_t kMostImports = 64;      // open on a thread; what lies further in belongs to the 64th
inline constexpr int kMaxFramesBeyond = 1'000;  // an import is looked for so far behind the frames that are stated

extern bool g_imports_in_brief;  // the option; false at the levels `off` and `modules`, which record no functions

inline bool is_brief_kind(FunctionKind kind) noexcept {
  return kind == FunctionKind::kImport || kind == FunctionKind::kCompile;
}

struct Import {         // or a compilation
  const Frame* frame;   // of _find_and_load, or of the compiler's function: tells which call ends
  FunctionId function;  // stands for it
  uint32_t calls;
  uint32_t ops;
  uint64_t last_op;  // the handle of the operator that was the last one then
  bool is_full;
  bool is_compilers;  // a compilation, or within one: never in full
};

struct Imports {  // those that are open on the thread
  static constexpr Mapping kMapping = Mapping::kPythonImports;
  size_t count;
  Import open[kMostImports];  // the outermost first
};

// Once, after the level is known.
void start_imports() noexcept;

// Whether the innermost import of the thread is one in brief, and its stack is known.
inline bool is_in_brief(ThreadBuffer& buffer) noexcept { return on_thread(buffer).epoch == (g_epoch | kBrief); }

namespace detail {
bool begin_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame) noexcept;
void end_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept;
}  // namespace detail

// A frame of `code` begins on a thread that is in brief; `frame` as for begin_call(). True: the import counts in full
// from here on, and so does this call.
inline bool begin_in_brief(ThreadBuffer& buffer, Object* code, Frame* frame) noexcept {
  auto& imports = *buffer.sources.mapped<Imports>();
  Import& import = imports.open[imports.count - 1];
  const Function function = seen_function(code);
  if (function.is_plain() && ++import.calls < kMostCalls && buffer.last_op.handle == import.last_op) [[likely]]
    return false;
  return detail::begin_in_brief_slow(buffer, function, frame);
}

inline void end_in_brief(ThreadBuffer& buffer, Object* code, Frame* frame, Ticks time) noexcept {
  if (const Function function = seen_function(code); function.is_followed()) [[unlikely]]
    detail::end_in_brief_slow(buffer, function, frame, time);
}

// A call of _find_and_load or of the compiler begins, or ends. False: it imports nothing, or is not told apart: it is a
// call as any other.
bool begin_import(ThreadBuffer& buffer, Function function, Frame* frame) noexcept;
bool end_import(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept;

// The imports among the frames of a thread, which are given from the innermost outwards.
class FoundImports {
 public:
  explicit FoundImports(ThreadBuffer& buffer) noexcept;

  // `inner`: the code that `frame` has called; nullptr: it is the innermost. nullptr: it is no import.
  const Import* add(Frame* frame, Function function, Object* inner) noexcept;
  // These are the thread's imports from now on.
  void set() noexcept;

 private:
  ThreadBuffer& buffer_;
  Imports* const known_;
  size_t count_ = 0;
  Import found_[kMostImports];  // the innermost first
};

}  // namespace torchprof::python
