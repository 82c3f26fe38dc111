// How to get from a stack frame to its caller, from the call frame information of DWARF that every x86-64 object
// carries for C++ exceptions (.eh_frame). Programs without frame pointers need nothing else.
//
// libunwind has this too, but Debian's libunwind.a is not position independent: it cannot be linked into a library, and
// libunwind.so brings _Unwind_* of its own, which would take the place of libgcc's in the program. Tests compare with
// it.
//
// Sources: DWARF 5, section 6.4; System V ABI, AMD64 supplement, section 3.6.2 (register numbers); Linux Standard Base
// Core 5.0, section 10.6 (.eh_frame). The lookup of an entry is libgcc's _Unwind_Find_FDE: by _dl_find_object, which
// takes no lock and may be called under the loader's.
#pragma once

#include <cstdint>

namespace torchprof::native {

// Where a function stands in its body: the registers that a caller's frame is found by. Return addresses lie below the
// canonical frame address (CFA), which is the caller's stack pointer.
struct Registers {
  uintptr_t pc;
  uintptr_t sp;
  uintptr_t bp;
};

// What holds at one return address. 16 bytes: caches of it are searched for every frame.
struct FrameRule {
  enum Cfa : uint8_t {
    kUnknown,  // no information, or a form that compilers do not write: the stack ends here, and is not whole
    kEnd,      // the outermost frame of a thread
    kSp,       // CFA = sp + cfa
    kBp,       // CFA = bp + cfa
    kAtBp,     // CFA = *(bp + cfa): a frame that was realigned
  };
  enum Bp : uint8_t {
    kSame,       // the caller's bp is in the register
    kAtCfa,      // it is saved at CFA + bp
    kAtFrameBp,  // at bp + bp
  };
  uintptr_t pc = 0;
  int32_t cfa = 0;
  int16_t bp = 0;
  Cfa cfa_is = kUnknown;
  Bp bp_is = kSame;
};
static_assert(sizeof(FrameRule) == 16);

// A function, or a part of it that stands apart.
struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t size = 0;  // 0: not known

  bool has(uintptr_t pc) const noexcept { return pc - begin < size; }
};
// What the return address `pc` is in.
CodeRange function_at(uintptr_t pc) noexcept;

// The rule for the return address `pc`; about 200 ns, no lock, no allocation. Of code that registered its frames with
// the program's own libgcc (JIT compilers) its lock is taken, for as long as a search in a list takes.
FrameRule find_rule(uintptr_t pc) noexcept;
// Looks for the program's own libgcc. Once, not under the loader's lock.
void find_registered_frames() noexcept;

// Goes on to the caller. False: there is none, or `registers` cannot be those of a frame. `top` is an address above the
// thread's stack: nothing there is read; 0: not known.
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
  if (cfa <= registers.sp || !is_on_stack(cfa - 8)) return false;
  if (rule.bp_is != FrameRule::kSame) {
    const uintptr_t saved = at(rule.bp_is == FrameRule::kAtCfa ? cfa : registers.bp, rule.bp);
    if (!is_on_stack(saved)) return false;
    registers.bp = *reinterpret_cast<const uintptr_t*>(saved);
  }
  registers.pc = *reinterpret_cast<const uintptr_t*>(cfa - 8);
  registers.sp = cfa;
  return registers.pc != 0;
}

}  // namespace torchprof::native
