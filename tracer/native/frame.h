// Finds the caller of a stack frame, by the DWARF call frame information that every object has for C++ exceptions
// (.eh_frame) on x86-64 and AArch64. Needs no frame pointers.
//
// libunwind can do this, too. But Debian's libunwind.a is not position independent, so it cannot be linked into a
// library, and libunwind.so has _Unwind_* functions of its own, which would replace libgcc's in the program. Tests
// compare the two.
//
// Sources: DWARF 5, section 6.4; Linux Standard Base Core 5.0, section 10.6 (.eh_frame); of registers and signed return
// addresses: tracer/processor/registers.h. An entry is looked up by libgcc's _Unwind_Find_FDE, which uses
// _dl_find_object: that takes no lock and may be called while the loader holds its own. Before glibc 2.35 it is ours,
// which takes one (tracer/libc/old_libc.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "tracer/processor/registers.h"

namespace torchprof::native {

// The registers of one frame, by which the caller's is found. The canonical frame address (CFA) is the caller's stack
// pointer.
struct Registers {
  uintptr_t pc;
  uintptr_t sp;
  uintptr_t bp;  // the frame pointer: rbp, x29
};

// Where a frame keeps its return address, from the CFA. set(): false, if the processor or a compiler does not put it
// there.
class PushedReturn {
 public:
  static constexpr int32_t offset() { return -8; }
  static constexpr bool set(int64_t offset) { return offset == PushedReturn::offset(); }
};
class SavedReturn {
 public:
  constexpr int32_t offset() const { return offset_; }
  constexpr bool set(int64_t offset) {
    offset_ = static_cast<int32_t>(offset);
    return offset == offset_ && offset < 0;
  }

 private:
  int32_t offset_ = 0;
};

// How to find the caller at one return address. Small: a cache of rules is searched for every frame.
struct FrameRule {
  enum Cfa : uint8_t {
    kUnknown,  // no information, or a form that compilers do not write: the stack ends here and is not complete
    kEnd,      // the outermost frame of a thread
    kSp,       // CFA = sp + cfa
    kBp,       // CFA = bp + cfa
    kAtBp,     // CFA = *(bp + cfa): a frame that was realigned
  };
  enum Bp : uint8_t {
    kSame,       // the caller's bp is in the register
    kAtCfa,      // it is saved at CFA + bp
    kAtFrameBp,  // it is saved at the register's bp + bp
  };
  uintptr_t pc = 0;
  int32_t cfa = 0;
  // Where a call does not push, the registers are saved below a frame's variables, which may be large.
  std::conditional_t<processor::kCallPushes, int16_t, int32_t> bp = 0;
  Cfa cfa_is = kUnknown;
  Bp bp_is = kSame;
  [[no_unique_address]] std::conditional_t<processor::kCallPushes, PushedReturn, SavedReturn> return_at{};
};
static_assert(sizeof(FrameRule) == (processor::kCallPushes ? 16 : 24));

// A function, or a part of it that the compiler has put elsewhere.
struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t size = 0;  // 0: not known

  bool has(uintptr_t pc) const noexcept { return pc - begin < size; }
};
// The function in which the return address `pc` lies.
CodeRange function_at(uintptr_t pc) noexcept;

// The rule for the return address `pc`; about 200 ns, no lock but for what is said above, no allocation. For code that
// registered its frames with the program's own libgcc (JIT compilers), libgcc's lock is held while a list is searched.
FrameRule find_rule(uintptr_t pc) noexcept;
// Looks for the program's own libgcc. Once, not while the loader's lock is held.
void find_registered_frames() noexcept;

// Steps to the caller. False: there is none, or `registers` cannot be those of a frame. `top`: the end of the thread's
// stack, nothing at or above it is read; 0: not known.
inline bool step(const FrameRule& rule, uintptr_t top, Registers& registers) noexcept {
  uintptr_t cfa = 0;
  const auto at = [](uintptr_t base, intptr_t offset) { return base + static_cast<uintptr_t>(offset); };
  const auto is_on_stack = [&](uintptr_t address) {
    return address >= registers.sp && address % 8 == 0 && (top == 0 || address < top);
  };
  switch (rule.cfa_is) {
    case FrameRule::kSp:
      cfa = at(registers.sp, rule.cfa);
      break;
    case FrameRule::kBp:
      cfa = at(registers.bp, rule.cfa);
      break;
    case FrameRule::kAtBp:
      if (!is_on_stack(at(registers.bp, rule.cfa))) return false;
      cfa = *reinterpret_cast<const uintptr_t*>(at(registers.bp, rule.cfa));
      break;
    default:
      return false;
  }
  const uintptr_t return_at = at(cfa, rule.return_at.offset());
  if (cfa <= registers.sp || !is_on_stack(return_at)) return false;
  if (rule.bp_is != FrameRule::kSame) {
    const uintptr_t saved = at(rule.bp_is == FrameRule::kAtCfa ? cfa : registers.bp, rule.bp);
    if (!is_on_stack(saved)) return false;
    registers.bp = *reinterpret_cast<const uintptr_t*>(saved);
  }
  registers.pc = processor::unsigned_address(*reinterpret_cast<const uintptr_t*>(return_at));
  registers.sp = cfa;
  return registers.pc != 0;
}

}  // namespace torchprof::native
