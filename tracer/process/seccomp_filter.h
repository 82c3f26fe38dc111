// What a seccomp filter would do to the system calls that we make, from its program alone: the kernel runs it for each
// call, and what it answers may be the end of the process.
//
// The program is walked once for each of our calls, with its number and the machine known, and its arguments and the
// instruction's address unknown: of a condition on these both ways are taken. Source of the language:
// Documentation/userspace-api/seccomp_filter.rst and net/core/filter.c of Linux; a program of seccomp has no loops.
//
// Any thread, no allocation but a mapping that is released, errno is kept.
#pragma once

#include <cstddef>
#include <span>

struct sock_filter;

namespace torchprof {

enum class FilterEffect {
  kNone,     // each of our calls is made, or fails in a way that we bear
  kKills,    // one of them would end the process or the thread, raise a signal, wait for somebody, or fail where we
             // cannot bear it
  kUnknown,  // the kernel will refuse the program, or we do not understand it
};

FilterEffect effect_of(std::span<const sock_filter> program) noexcept;

}  // namespace torchprof
