#include "tracer/process/seccomp_filter.h"

#include <doctest/doctest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace seccomp_filter_test {

using torchprof::effect_of;
using torchprof::FilterEffect;

namespace {

using Program = std::vector<sock_filter>;

const sock_filter kNumber = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
const sock_filter kMachine = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
const sock_filter kArgument = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args));

sock_filter answer(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// `action` for the call `number`, `otherwise` for all else.
Program filter(uint32_t number, uint32_t action, uint32_t otherwise) {
  return {kNumber, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), answer(action), answer(otherwise)};
}
constexpr uint32_t kEperm = SECCOMP_RET_ERRNO | 1;

}  // namespace

TEST_CASE("what is killed, and whether it is one of our calls") {
  CHECK(effect_of(Program{answer(SECCOMP_RET_ALLOW)}) == FilterEffect::kNone);
  CHECK(effect_of(Program{answer(SECCOMP_RET_KILL_PROCESS)}) == FilterEffect::kKills);
  CHECK(effect_of(filter(SYS_reboot, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_ALLOW)) == FilterEffect::kNone);
  for (const uint32_t action :
       {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_USER_NOTIF})
    CHECK(effect_of(filter(SYS_fallocate, action, SECCOMP_RET_ALLOW)) == FilterEffect::kKills);
  for (const uint32_t action : {SECCOMP_RET_LOG, SECCOMP_RET_TRACE})
    CHECK(effect_of(filter(SYS_fallocate, action, SECCOMP_RET_ALLOW)) == FilterEffect::kNone);
}

TEST_CASE("an error is borne where a call may fail") {
  CHECK(effect_of(filter(SYS_fallocate, kEperm, SECCOMP_RET_ALLOW)) == FilterEffect::kNone);
  CHECK(effect_of(filter(SYS_fallocate, SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW)) == FilterEffect::kKills);  // "done"
  CHECK(effect_of(filter(SYS_futex, kEperm, SECCOMP_RET_ALLOW)) == FilterEffect::kKills);
}

TEST_CASE("the machine is ours, and arguments may be anything") {
  CHECK(effect_of(Program{kMachine, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_I386, 0, 1),
                          answer(SECCOMP_RET_KILL_PROCESS), answer(SECCOMP_RET_ALLOW)}) == FilterEffect::kNone);
  CHECK(effect_of(Program{kArgument, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 1), answer(SECCOMP_RET_KILL_PROCESS),
                          answer(SECCOMP_RET_ALLOW)}) == FilterEffect::kKills);
  // Of a number above all of ours (as for x32), calculated.
  CHECK(effect_of(Program{kNumber, BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x40000000),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), answer(SECCOMP_RET_KILL_PROCESS),
                          answer(SECCOMP_RET_ALLOW)}) == FilterEffect::kNone);
}

TEST_CASE("what the kernel refuses is left to it") {
  CHECK(effect_of(Program{}) == FilterEffect::kUnknown);
  CHECK(effect_of(Program{kNumber}) == FilterEffect::kUnknown);  // without an end
  CHECK(effect_of(Program{BPF_JUMP(BPF_JMP | BPF_JA, 7, 0, 0), answer(0)}) == FilterEffect::kUnknown);  // out of it
  CHECK(effect_of(Program(BPF_MAXINSNS, answer(SECCOMP_RET_ALLOW))) == FilterEffect::kNone);
  CHECK(effect_of(Program(BPF_MAXINSNS + 1, answer(SECCOMP_RET_ALLOW))) == FilterEffect::kUnknown);
}

}  // namespace seccomp_filter_test
