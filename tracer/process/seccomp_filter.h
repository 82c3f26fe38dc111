// What a seccomp filter would do to our own system calls, judged from its program alone. The kernel runs that program
// at each system call, and its answer may end the process.
//
// The program is walked once for each of our calls. The number of the call and the machine are known; the arguments and
// the address of the instruction are not, so both ways are taken where a condition asks for them. Source of the
// language: Documentation/userspace-api/seccomp_filter.rst and net/core/filter.c of Linux; a seccomp program has no
// loops.
//
// Any thread, no allocation but a mapping that is released, errno is kept.
#pragma once

#include <cstddef>
#include <span>

struct sock_filter;

namespace torchprof {

enum class FilterEffect {
  kNone,     // each of our calls is made, or fails where we can handle that
  kKills,    // one of them would end the process or the thread, raise a signal, wait for another process, or fail where
             // we cannot handle that
  kUnknown,  // the kernel will refuse the program, or we do not understand it
};

FilterEffect effect_of(std::span<const sock_filter> program) noexcept;

}  // namespace torchprof
