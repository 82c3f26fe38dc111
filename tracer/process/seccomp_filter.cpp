#include "tracer/process/seccomp_filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "tracer/processor/processor.h"

namespace torchprof {
namespace {

// The system calls that the recorder and the wrappers of exec may make until the process ends, also through libc, whose
// version decides which of several calls for one purpose it uses. These may fail.
constexpr int kMayFail[] = {SYS_openat,       SYS_close,       SYS_read,
                            SYS_write,        SYS_pread64,     SYS_pwrite64,
                            SYS_pwritev,      SYS_fallocate,   SYS_ftruncate,
                            SYS_mmap,         SYS_munmap,      SYS_mremap,
                            SYS_mprotect,     SYS_madvise,     SYS_brk,
                            SYS_fstat,        SYS_newfstatat,  SYS_statx,
                            SYS_fstatfs,      SYS_fcntl,       SYS_flock,
                            SYS_mkdirat,      SYS_unlinkat,    SYS_faccessat,
                            __NR_faccessat2,  SYS_readlinkat,  SYS_fgetxattr,
                            SYS_uname,        SYS_prlimit64,   SYS_prctl,
                            SYS_rt_sigaction, SYS_ioctl,       SYS_eventfd2,
                            SYS_ppoll,        SYS_socket,      SYS_bind,
                            SYS_listen,       SYS_accept4,     SYS_getsockopt,
                            SYS_sendto,       SYS_sysinfo,     SYS_process_vm_readv,
                            SYS_clone,        SYS_wait4,       SYS_sched_getaffinity,
                            __NR_close_range, __NR_pidfd_open, __NR_pidfd_getfd};
// These must not: we could not notice the failure, or libc ends the process because of it.
constexpr int kMustNotFail[] = {SYS_getpid, SYS_getppid, SYS_gettid,         SYS_getuid,        SYS_geteuid,
                                SYS_getgid, SYS_futex,   SYS_rt_sigprocmask, SYS_clock_gettime, SYS_sched_yield};

// What is known at one instruction, whichever path led there.
struct State {
  uint32_t a, x;
  bool is_reached, knows_a, knows_x;
};

void meet(State& at, const State& from) noexcept {
  if (!at.is_reached) {
    at = from;
    at.is_reached = true;
    return;
  }
  at.knows_a = at.knows_a && from.knows_a && at.a == from.a;
  at.knows_x = at.knows_x && from.knows_x && at.x == from.x;
}

std::optional<uint32_t> load(const sock_filter& code, int number) noexcept {
  if (BPF_MODE(code.code) == BPF_IMM) return code.k;
  if (BPF_MODE(code.code) == BPF_LEN) return uint32_t{sizeof(seccomp_data)};
  if (BPF_MODE(code.code) != BPF_ABS) return {};
  if (code.k == offsetof(seccomp_data, nr)) return static_cast<uint32_t>(number);
  if (code.k == offsetof(seccomp_data, arch)) return processor::kAuditMachine;
  return {};
}

std::optional<uint32_t> calculate(uint16_t operation, uint32_t a, uint32_t b) noexcept {
  switch (operation) {
    case BPF_ADD:
      return a + b;
    case BPF_SUB:
      return a - b;
    case BPF_MUL:
      return a * b;
    case BPF_OR:
      return a | b;
    case BPF_AND:
      return a & b;
    case BPF_XOR:
      return a ^ b;
    case BPF_LSH:
      return b < 32 ? std::optional(a << b) : std::nullopt;
    case BPF_RSH:
      return b < 32 ? std::optional(a >> b) : std::nullopt;
    case BPF_NEG:
      return 0 - a;
    default:
      return {};
  }
}

std::optional<bool> compare(uint16_t operation, uint32_t a, uint32_t b) noexcept {
  switch (operation) {
    case BPF_JEQ:
      return a == b;
    case BPF_JGT:
      return a > b;
    case BPF_JGE:
      return a >= b;
    case BPF_JSET:
      return (a & b) != 0;
    default:
      return {};
  }
}

bool bears(uint32_t answer, bool may_fail) noexcept {
  const uint32_t action = answer & SECCOMP_RET_ACTION_FULL;
  // A tracer that asks to be told of a call (strace) lets it pass.
  if (action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG || action == SECCOMP_RET_TRACE) return true;
  return action == SECCOMP_RET_ERRNO && may_fail && (answer & SECCOMP_RET_DATA) != 0;
}

// `states` has one entry for each instruction. Jumps only lead forward, so all that leads to an instruction comes
// before it.
FilterEffect effect_on(int number, bool may_fail, std::span<const sock_filter> program, State* states) noexcept {
  const size_t size = program.size();
  for (size_t i = 0; i < size; ++i) states[i] = {};
  states[0] = {.a = 0, .x = 0, .is_reached = true, .knows_a = true, .knows_x = true};
  for (size_t i = 0; i < size; ++i) {
    if (!states[i].is_reached) continue;
    const sock_filter& code = program[i];
    State after = states[i];
    const auto set = [](uint32_t& value, bool& knows, std::optional<uint32_t> to) {
      value = to.value_or(0);
      knows = to.has_value();
    };
    const bool by_x = BPF_SRC(code.code) == BPF_X;
    const bool knows_both = after.knows_a && (!by_x || after.knows_x);
    const uint32_t other = by_x ? after.x : code.k;
    size_t ways[2] = {i + 1, i + 1};
    switch (BPF_CLASS(code.code)) {
      case BPF_LD:
        set(after.a, after.knows_a, load(code, number));
        break;
      case BPF_LDX:
        set(after.x, after.knows_x, load(code, number));
        break;
      case BPF_ST:
      case BPF_STX:
        break;  // a value that is loaded from there later counts as unknown
      case BPF_ALU:
        set(after.a, after.knows_a, knows_both ? calculate(BPF_OP(code.code), after.a, other) : std::nullopt);
        break;
      case BPF_MISC:
        if (BPF_MISCOP(code.code) == BPF_TAX)
          after.x = after.a, after.knows_x = after.knows_a;
        else
          after.a = after.x, after.knows_a = after.knows_x;
        break;
      case BPF_JMP: {
        ways[0] = ways[1] = i + 1 + (BPF_OP(code.code) == BPF_JA ? size_t{code.k} : 0);
        if (BPF_OP(code.code) == BPF_JA) break;
        const auto holds = knows_both ? compare(BPF_OP(code.code), after.a, other) : std::nullopt;
        ways[0] += !holds || *holds ? code.jt : code.jf;
        ways[1] += !holds || !*holds ? code.jf : code.jt;
        break;
      }
      case BPF_RET:
        if (BPF_RVAL(code.code) == BPF_A ? !after.knows_a || !bears(after.a, may_fail) : !bears(code.k, may_fail))
          return FilterEffect::kKills;
        continue;
      default:
        return FilterEffect::kUnknown;
    }
    for (const size_t way : ways) {
      if (way >= size) return FilterEffect::kUnknown;
      meet(states[way], after);
    }
  }
  return FilterEffect::kNone;
}

}  // namespace

FilterEffect effect_of(std::span<const sock_filter> program) noexcept {
  if (program.empty() || program.size() > BPF_MAXINSNS) return FilterEffect::kUnknown;
  const int saved = errno;
  const size_t bytes = program.size() * sizeof(State);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FilterEffect effect = memory == MAP_FAILED ? FilterEffect::kKills : FilterEffect::kNone;
  auto* states = static_cast<State*>(memory);
  for (const int number : kMayFail)
    if (effect == FilterEffect::kNone) effect = effect_on(number, true, program, states);
  for (const int number : processor::kFormerCalls)
    if (effect == FilterEffect::kNone) effect = effect_on(number, true, program, states);
  for (const int number : kMustNotFail)
    if (effect == FilterEffect::kNone) effect = effect_on(number, false, program, states);
  if (memory != MAP_FAILED) munmap(memory, bytes);
  errno = saved;
  return effect;
}

}  // namespace torchprof
