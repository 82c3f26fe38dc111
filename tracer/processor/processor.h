// What the processor is called by the kernel and by ELF files, its counter, and how a loop waits on it.
//
// Every function is inline, has no state, and may be called from any thread and any signal handler.
//
// Sources: ELF for the Arm 64-bit Architecture (AAELF64) and the System V ABI, AMD64 supplement, as <elf.h> has them;
// the Linux kernel's include/uapi/linux/audit.h; Arm Architecture Reference Manual, D11 (the generic timer).
#pragma once

#include <elf.h>
#include <linux/audit.h>
#include <sys/syscall.h>

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "torchprof knows x86-64 and AArch64"
#endif

// The version of the first glibc for the processor: each function's first version is named so.
#if defined(__x86_64__)
#define TORCHPROF_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define TORCHPROF_FIRST_GLIBC "GLIBC_2.17"
#endif

namespace torchprof::processor {

#if defined(__x86_64__)
inline constexpr uint16_t kElfMachine = EM_X86_64;
inline constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobData = R_X86_64_GLOB_DAT;
// As a seccomp filter sees system calls.
inline constexpr uint32_t kAuditMachine = AUDIT_ARCH_X86_64;
// Calls that only older processors have and that a libc may use instead of their successors (openat and the like).
inline constexpr int kFormerCalls[] = {SYS_open,     SYS_stat, SYS_mkdir,     SYS_unlink, SYS_access,
                                       SYS_readlink, SYS_poll, SYS_getrlimit, SYS_pipe};
// The kernel's clocksource of the counter, by its beginning: there are "tsc" and "tsc-early".
inline constexpr char kCounterSource[] = "tsc";
inline constexpr char kCounterName[] = "TSC";
#else
inline constexpr uint16_t kElfMachine = EM_AARCH64;
inline constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobData = R_AARCH64_GLOB_DAT;
inline constexpr uint32_t kAuditMachine = AUDIT_ARCH_AARCH64;
inline constexpr int kFormerCalls[] = {SYS_getrlimit};
inline constexpr char kCounterSource[] = "arch_sys_counter";
inline constexpr char kCounterName[] = "CNTVCT_EL0";
#endif

// Counts at a constant rate, the same on all cores, where the kernel's clocksource is kCounterSource.
//
// Not ordered with what stands around it, on either processor: the instructions next to it may run before or after,
// some ten nanoseconds of them. On AArch64 it counts 25 MHz (40 ns) on some machines and 1 GHz on others; the kernel's
// own clocks know no finer time there.
inline uint64_t counter() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  uint64_t count;
  // volatile: two reads are two reads, in this order.
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#endif
}

// In a loop that waits for another thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("isb" ::
                   : "memory");  // "yield" does nothing on most cores; this stops one for about as long as x86's pause
#endif
}

}  // namespace torchprof::processor
