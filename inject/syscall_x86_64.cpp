// syscall() in the program: a comparison and a jump, with all registers and the stack as the caller left them, since a
// system call may use any of them. Which symbols it calls: seccomp_entry.cpp.
#include <sys/syscall.h>

static_assert(SYS_seccomp == 317);
asm(R"(
  .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  endbr64
  cmpl $317, %edi  # SYS_seccomp
  je torchprof_enter_seccomp
  jmp *torchprof_next_syscall(%rip)
  .cfi_endproc
  .size syscall, .-syscall

  .globl torchprof_raw_syscall
  .hidden torchprof_raw_syscall
  .type torchprof_raw_syscall, @function
torchprof_raw_syscall:
  .cfi_startproc
  endbr64
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 1f
  ret
1:
  movq %rax, %rdi
  jmp torchprof_set_errno
  .cfi_endproc
  .size torchprof_raw_syscall, .-torchprof_raw_syscall
)");
