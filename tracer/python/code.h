// Identity of code objects. An id lives exactly as long as its code object, which carries it in a co_extra slot of its
// own. Modules and optimizers: modules.h.
//
// Threads: all functions need the GIL. No Python code runs in here; a pending exception is kept.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/session.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/record.h"

namespace torchprof::python {

// What a code object carries in its co_extra slot: the id, whether it is the program's, and the kind in the lowest four
// bits. Zero: nothing yet.
struct Function {
  // Not more than this: the function is a plain one that has no id, because it was seen in an import alone.
  static constexpr uintptr_t kNoId = 1 << 4;
  uintptr_t bits = 0;

  static Function make(FunctionId id, FunctionKind kind, bool is_of_program = false) noexcept {
    return {uintptr_t{id.value} << 6 | uintptr_t{is_of_program} << 5 | kNoId | static_cast<uintptr_t>(kind)};
  }
  FunctionId id() const noexcept { return {static_cast<uint32_t>(bits >> 6)}; }
  // It lies neither in Python's library nor where packages are installed, and its lines are defined (site.h).
  bool is_of_program() const noexcept { return (bits & 1 << 5) != 0; }
  FunctionKind kind() const noexcept { return static_cast<FunctionKind>(bits & 15); }
  bool is_plain() const noexcept { return (bits & 15) == 0; }
  // We look at it because of what it does, not to record a span.
  bool is_followed() const noexcept { return kind() >= FunctionKind::kThread; }
};

// co_filename of code of ours; the function in the script by which `torchprof attach` comes (launcher/attach/).
inline constexpr char kOwnFile[] = "<torchprof>", kOwnFunction[] = "torchprof_attach";

namespace detail {
extern Size g_extra;           // our index among the co_extra slots
extern size_t g_extra_offset;  // of PyCodeObject.co_extra; 0: not known, the API is asked
struct Extra {                 // _PyCodeObjectExtra, Objects/codeobject.c, 3.10 to 3.15
  Size size;
  uintptr_t slots[1];
};
Function function_slow(Object* code) noexcept;
Function seen_function_slow(Object* code) noexcept;
}  // namespace detail

// Once, before the rest. False: no co_extra slot is free.
bool prepare_objects() noexcept;

// The same in a further interpreter that is starting. False: our index there would be another one.
bool prepare_objects_here() noexcept;

namespace detail {
inline uintptr_t mark_of(Object* code) noexcept {
  if (!g_extra_offset) [[unlikely]]
    return 0;
  const auto* extra = static_cast<const Extra*>(read_pointer(code, g_extra_offset));
  return extra && g_extra < extra->size ? extra->slots[g_extra] : 0;
}
}  // namespace detail

// What the code object carries already; nothing where prepare_objects() did not find the layout that it knows. A few
// loads; for code that the calling thread runs also without the GIL.
inline Function known_function(Object* code) noexcept {
  const uintptr_t mark = detail::mark_of(code);
  return {mark > Function::kNoId ? mark : 0};
}

// The same, and defines the function if need be. For the hot path.
inline Function function_of(Object* code) noexcept {
  if (const Function known = known_function(code); known.bits) [[likely]]
    return known;
  return detail::function_slow(code);
}

// The kind of a function, which is defined only if it is no plain one.
inline Function seen_function(Object* code) noexcept {
  const uintptr_t mark = detail::mark_of(code);
  return mark ? Function{mark} : detail::seen_function_slow(code);
}

// Whether it is a function of torch.profiler's, of any kind.
bool is_of_profiler(Object* code) noexcept;

// Defines what stands for the compilation of `code`: "compile f", at its file and line.
FunctionId define_compilation(Object* code) noexcept;

// Defines what stands for the import of the module `name`; with an `id`, states it again with the module's file (a str;
// nullptr: it has none). None: nothing can be recorded any more.
FunctionId define_import(FunctionId id, StringId name, Object* file) noexcept;

}  // namespace torchprof::python
