// The registers by which the caller of a stack frame is found.
//
// Sources: System V ABI, AMD64 supplement, section 3.6.2; Procedure Call Standard for the Arm 64-bit Architecture
// (AAPCS64), section 6.4.6 (the frame pointer); DWARF for the Arm 64-bit Architecture (AADWARF64), sections
// 4.1 (register numbers), 4.2 and 4.3 (return addresses that are signed, and their call frame instruction); Arm
// Architecture Reference Manual, C6 (XPACLRI).
#pragma once

#include <cstdint>

namespace torchprof::processor {

// DWARF's numbers of them. kReturnRegister: on x86-64 no register, the number stands for the return address.
#if defined(__x86_64__)
inline constexpr uint64_t kFrameRegister = 6, kStackRegister = 7, kReturnRegister = 16;
// A call puts the return address right below the canonical frame address, always.
inline constexpr bool kCallPushes = true;
inline constexpr bool kFrameRegisterEnds = false;
#else
inline constexpr uint64_t kFrameRegister = 29, kStackRegister = 31, kReturnRegister = 30;
// A call leaves the return address in the register. The function that is called saves it where it likes.
inline constexpr bool kCallPushes = false;
// The frame register is 0 in the outermost frame, and no function may use it for anything else. The function where
// programs start has no call frame information before glibc 2.33 or so.
inline constexpr bool kFrameRegisterEnds = true;
#endif

// The address to which a saved return address leads. AArch64 can sign return addresses (pointer authentication) in bits
// that are not part of the address. To take the signature away from one that has none changes nothing, so nobody needs
// to follow where which function signs.
inline uintptr_t unsigned_address(uintptr_t saved) noexcept {
#if defined(__x86_64__)
  return saved;
#else
  register uintptr_t address asm("x30") = saved;
  asm("hint #7" : "+r"(address));  // xpaclri; on older processors it does nothing
  return address;
#endif
}

// An address in the function that this is inlined into, and its registers.
[[gnu::always_inline]] inline void read_registers(uintptr_t& pc, uintptr_t& sp, uintptr_t& bp) noexcept {
#if defined(__x86_64__)
  asm("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2" : "=&r"(pc), "=&r"(sp), "=&r"(bp));
#else
  asm("adr %0, .\n\tmov %1, sp\n\tmov %2, x29" : "=&r"(pc), "=&r"(sp), "=&r"(bp));
#endif
}

}  // namespace torchprof::processor
