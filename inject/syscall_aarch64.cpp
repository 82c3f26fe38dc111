// As syscall_x86_64.cpp, for AArch64. The register x16 belongs to whoever stands between a caller and a function; "hint
// #34" (bti c) marks where an indirect call may land and does nothing on older processors.
//
// Source: Procedure Call Standard for the Arm 64-bit Architecture (AAPCS64), section 6.1.1; arch/arm64/kernel/entry.S
// of Linux: the number in x8, arguments in x0 to x5, the result or a negative errno in x0.
#include <sys/syscall.h>

static_assert(SYS_seccomp == 277);
asm(R"(
  .text
  .globl syscall
  .type syscall, %function
syscall:
  .cfi_startproc
  hint #34
  cmp w0, #277  // SYS_seccomp
  b.eq 1f
  adrp x16, torchprof_next_syscall
  ldr x16, [x16, #:lo12:torchprof_next_syscall]
  br x16
1:
  b torchprof_enter_seccomp
  .cfi_endproc
  .size syscall, .-syscall

  .globl torchprof_raw_syscall
  .hidden torchprof_raw_syscall
  .type torchprof_raw_syscall, %function
torchprof_raw_syscall:
  .cfi_startproc
  hint #34
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  cmn x0, #4095
  b.cs 1f
  ret
1:
  b torchprof_set_errno
  .cfi_endproc
  .size torchprof_raw_syscall, .-torchprof_raw_syscall
)");
