#include "inject/seccomp_entry.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "inject/imports.h"
#include "inject/late/replaced.h"
#include "tracer/process/diag.h"
#include "tracer/process/readable.h"
#include "tracer/process/seal.h"
#include "tracer/process/seccomp_filter.h"
#include "tracer/session.h"
#include "tracer/window.h"

// syscall() itself and the next are in syscall_x86_64.cpp and syscall_aarch64.cpp.
//
// What syscall() calls before libc's has been looked up, while constructors run.
extern "C" __attribute__((visibility("hidden"))) long torchprof_raw_syscall(long number, ...);
extern "C" __attribute__((visibility("hidden"))) long torchprof_set_errno(long result) {
  errno = static_cast<int>(-result);
  return -1;
}
extern "C" {
__attribute__((visibility("hidden"))) long (*torchprof_next_syscall)(long number, ...) = torchprof_raw_syscall;
}

namespace torchprof::inject {
namespace {

constinit thread_local bool t_is_quiet __attribute__((tls_model("initial-exec"))) = false;

bool kills(const void* argument) noexcept {
  Readable readable;
  const auto* program = static_cast<const sock_fprog*>(argument);
  if (!readable.bytes(program, sizeof(*program)) ||
      !readable.bytes(program->filter, program->len * sizeof(sock_filter)))
    return false;  // the kernel refuses it
  return effect_of({program->filter, program->len}) == FilterEffect::kKills;
}

// Around the call that enters seccomp. In strict mode the kernel also forbids reading the processor's counter
// (disable_TSC() in prctl_set_seccomp and seccomp_set_mode_strict, kernel/seccomp.c).
class Entry {
 public:
  Entry(bool kills, bool is_strict) noexcept : kills_(kills && !must_be_quiet()) {
    if (!kills_) return;
    // Later nothing can be written to stderr any more.
    warn_once(
        Cause::kSeccomp,
        "process %d enters seccomp, which kills it for our system calls: %s; programs that it starts are not profiled",
        static_cast<int>(getpid()),
        window::is_open() ? "what still fits into mapped memory is recorded"
                          : "its window is closed, and does not open any more");
    if (!session::seal(!is_strict)) t_is_quiet = true;
  }
  void ended(bool is_entered) const noexcept {
    if (!kills_ || is_entered) return;
    if (t_is_quiet)
      t_is_quiet = false;
    else
      session::unseal();
  }

 private:
  bool kills_;
};

decltype(&prctl) g_prctl = nullptr;

// In the place of dlsym() for ctypes and cffi. They name a library, so it does not matter who calls.
void* look_up(void* library, const char* name) noexcept {
  void* found = dlsym(library, name);
  if (found && found == reinterpret_cast<void*>(g_prctl)) return reinterpret_cast<void*>(&prctl);
  if (found && found == reinterpret_cast<void*>(torchprof_next_syscall)) return reinterpret_cast<void*>(&syscall);
  return found;
}

}  // namespace

void find_seccomp() noexcept {
  g_prctl = reinterpret_cast<decltype(&prctl)>(dlsym(RTLD_NEXT, "prctl"));
  if (void* next = dlsym(RTLD_NEXT, "syscall"))
    torchprof_next_syscall = reinterpret_cast<decltype(torchprof_next_syscall)>(next);
}

void reach_lookups() noexcept {
  static std::atomic<int> ctypes_in{-1}, cffi_in{-1};  // the turn of the session in which it was reached
  const auto reach = [](const char* library, std::atomic<int>& in) {
    const Redirect redirect = {"dlsym", reinterpret_cast<void*>(look_up)};
    const int turn = session::turn();
    if (in.load(std::memory_order_relaxed) == turn || redirect_imports_of(library, &redirect, 1) == 0) return;
    in.store(turn, std::memory_order_relaxed);
    note_import(redirect.replacement, reinterpret_cast<void*>(&dlsym));
  };
  reach("_ctypes.", ctypes_in);
  reach("_cffi_backend.", cffi_in);
}

bool must_be_quiet() noexcept { return t_is_quiet || seal::is_sealed(); }

}  // namespace torchprof::inject

using namespace torchprof::inject;

// What syscall() calls for SYS_seccomp, the only number that it looks at.
extern "C" __attribute__((visibility("hidden"))) long torchprof_enter_seccomp(long number, unsigned long operation,
                                                                              unsigned long flags, void* argument) {
  const bool is_strict = operation == SECCOMP_SET_MODE_STRICT, is_filter = operation == SECCOMP_SET_MODE_FILTER;
  const int saved = errno;
  const Entry entry(is_strict || (is_filter && kills(argument)), is_strict);
  errno = saved;
  const long result = torchprof_next_syscall(number, operation, flags, argument);
  // A positive result is a descriptor with SECCOMP_FILTER_FLAG_NEW_LISTENER; with TSYNC it is the id of a thread that
  // could not be synchronized.
  const int after = errno;
  entry.ended(result == 0 || (result > 0 && (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)));
  errno = after;
  return result;
}

// As libc's does, reads four more arguments whatever the option is. Source: sysdeps/unix/sysv/linux/prctl.c, glibc
// 2.36.
extern "C" __attribute__((visibility("default"))) int prctl(int option, ...) noexcept {
  va_list list;
  va_start(list, option);
  const auto a = va_arg(list, unsigned long), b = va_arg(list, unsigned long), c = va_arg(list, unsigned long),
             d = va_arg(list, unsigned long);
  va_end(list);
  const auto next = [&] {
    return g_prctl ? g_prctl(option, a, b, c, d)
                   : static_cast<int>(torchprof_raw_syscall(SYS_prctl, static_cast<long>(option), a, b, c, d));
  };
  if (option != PR_SET_SECCOMP) [[likely]]
    return next();
  const int saved = errno;
  const bool is_strict = a == SECCOMP_MODE_STRICT;
  const Entry entry(is_strict || (a == SECCOMP_MODE_FILTER && kills(reinterpret_cast<void*>(b))), is_strict);
  errno = saved;
  const int result = next();
  const int after = errno;
  entry.ended(result == 0);
  errno = after;
  return result;
}
