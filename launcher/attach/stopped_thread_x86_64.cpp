#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "formats/io/error.h"
#include "formats/io/process_files.h"
#include "launcher/attach/stopped_thread.h"

// The stub: rbx has the Stub, whose members are addressed by their offsets. It runs once: whoever asks may have given
// up.
asm(R"(
    .pushsection .rodata
    .balign 16
torchprof_stub_begin:
    push %rbx
    mov %rdi, %rbx
    xor %eax, %eax
    mov $1, %ecx
    lock cmpxchg %rcx, 0(%rbx)
    jne 9f
    mov 16(%rbx), %rax
    test %rax, %rax
    jne 1f
    lea 64(%rbx), %rdi
    mov $2, %esi
    call *24(%rbx)
    test %rax, %rax
    je 8f
    mov %rax, %rdi
    lea 576(%rbx), %rsi
    call *32(%rbx)
    test %rax, %rax
    je 8f
    push %rax
    push %rax
    mov 56(%rbx), %rdi
    test %rdi, %rdi
    js 2f
    call *48(%rbx)
2:  pop %rax
    pop %rax
1:  lea 640(%rbx), %rdi
    call *%rax
    movq $3, 0(%rbx)
    jmp 9f
8:  call *40(%rbx)
    mov %rax, 8(%rbx)
    movq $2, 0(%rbx)
9:  xor %eax, %eax
    pop %rbx
    ret
torchprof_stub_end:
    .popsection
)");
extern "C" const std::byte torchprof_stub_begin[], torchprof_stub_end[];

namespace torchprof::launcher {
namespace {

using namespace std::chrono;
using Stub = StoppedThread::Stub;
static_assert(offsetof(Stub, error) == 8 && offsetof(Stub, function) == 16 && offsetof(Stub, open) == 24 &&
              offsetof(Stub, look_up) == 32 && offsetof(Stub, why) == 40 && offsetof(Stub, close) == 48 &&
              offsetof(Stub, descriptor) == 56 && offsetof(Stub, path) == 64 && offsetof(Stub, name) == 576 &&
              offsetof(Stub, settings) == 640);

constexpr size_t kMostVectors = 16384;  // bytes of the extended state
constexpr milliseconds kUntilStopped{2000};
constexpr std::string_view kSyscall = "\x0f\x05";  // the instruction

// Newer than the headers that the release is made with.
constexpr long kIoUringEnter = 426, kEpollPwait2 = 441;

// One of those with a timeout goes on as restart_syscall after a stop.
bool is_resting(long number) {
  constexpr long kResting[] = {
      SYS_poll,      SYS_ppoll,           SYS_select, SYS_pselect6,        SYS_epoll_wait,      SYS_epoll_pwait,
      SYS_nanosleep, SYS_clock_nanosleep, SYS_futex,  SYS_accept,          SYS_accept4,         SYS_recvfrom,
      SYS_recvmsg,   SYS_wait4,           SYS_waitid, SYS_rt_sigtimedwait, SYS_restart_syscall, SYS_read,
      SYS_readv,     SYS_write,           SYS_writev, SYS_recvmmsg,        SYS_sendto,          SYS_sendmsg,
      SYS_connect,   SYS_flock,           SYS_fcntl,  SYS_pause,           SYS_rt_sigsuspend,   kIoUringEnter,
      kEpollPwait2};
  return std::ranges::find(kResting, number) != std::end(kResting);
}

// signal(7): fail with EINTR after a stop, too.
bool is_never_restarted(long number) {
  constexpr long kNever[] = {SYS_epoll_wait, SYS_epoll_pwait, SYS_recvfrom,     SYS_recvmsg, SYS_rt_sigtimedwait,
                             SYS_accept,     SYS_accept4,     SYS_sendto,       SYS_sendmsg, SYS_connect,
                             SYS_semop,      SYS_semtimedop,  SYS_io_getevents, SYS_msgrcv};
  return std::ranges::find(kNever, number) != std::end(kNever);
}

StopPlaces::Ranges find_loader(const Image& image) {
  StopPlaces::Ranges out;
  for (const Mapping& mapping : image.maps()) {
    const std::string file = mapping.path.substr(mapping.path.rfind('/') + 1);
    if (mapping.is_code && (file.starts_with("ld-") || file.find("malloc") != std::string::npos))
      out.emplace_back(mapping.begin, mapping.end);
  }
  return out;
}

StopPlaces::Ranges find_allocator(const Image& image) {
  StopPlaces::Ranges out;
  for (const char* const name :
       {"malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "fork", "vfork",
        "pthread_create", "dlopen", "dlclose", "dlsym", "dl_iterate_phdr", "malloc_trim"}) {
    constexpr uint64_t kAtLeast = 64;
    if (const Symbol found = image.symbol("libc", name); found.address != 0)
      out.emplace_back(found.address, found.address + std::max(found.size, kAtLeast));
  }
  return out;
}

// Whether a call instruction may end right before it, so that it may be a return address: pointers to functions lie on
// stacks, too.
bool follows_call(const Image& image, uint64_t address) {
  constexpr size_t kLongest = 7;
  unsigned char before[kLongest] = {};
  if (!image.read(address - kLongest, before, sizeof(before))) return true;
  const auto at = [&before](size_t back) { return before[kLongest - back]; };
  if (at(5) == 0xe8) return true;  // call rel32
  for (const size_t back : {2u, 3u, 4u, 6u, 7u})
    if (at(back) == 0xff && (at(back - 1) >> 3 & 7) == 2) return true;  // call of a register or of memory
  return false;
}

uint64_t find_system_call(const Image& image) {
  for (const Mapping& mapping : image.maps()) {
    const bool is_libc =
        mapping.path.find("/libc.") != std::string::npos || mapping.path.find("/libc-") != std::string::npos;
    if (!mapping.is_code || (!is_libc && mapping.path != "[vdso]")) continue;
    std::string code(mapping.end - mapping.begin, 0);
    if (!image.read(mapping.begin, code.data(), code.size())) continue;
    if (const size_t found = code.find(kSyscall); found != std::string::npos) return mapping.begin + found;
  }
  return 0;
}

// Until a thread that we trace may have changed, or a moment has passed. To sleep and be woken is sooner than to look
// again and again where the processors are busy.
void wait_for_change() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  constexpr timespec kMoment = {.tv_sec = 0, .tv_nsec = 2'000'000};
  sigtimedwait(&child, nullptr, &kMoment);
}

}  // namespace

StopPlaces find_stop_places(const Image& image) {
  return {find_system_call(image), find_loader(image), find_allocator(image)};
}

// While a thread of the program stands still for us we do not stand in a queue for a processor, where that is allowed.
class Urgency {
 public:
  Urgency() : policy_(sched_getscheduler(0)) {
    constexpr sched_param kLowest = {.sched_priority = 1};
    is_urgent_ = policy_ == SCHED_OTHER && sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &kLowest) == 0;
  }
  ~Urgency() {
    constexpr sched_param kNone = {.sched_priority = 0};
    if (is_urgent_) sched_setscheduler(0, policy_, &kNone);
  }
  Urgency(const Urgency&) = delete;
  Urgency& operator=(const Urgency&) = delete;

 private:
  int policy_;
  bool is_urgent_ = false;
};

struct StoppedThread::Registers {
  Urgency urgency;
  sigset_t our_mask{};  // before SIGCHLD was blocked
  user_regs_struct general{};
  std::array<char, kMostVectors> vectors{};
  size_t vectors_size = 0;
  uint64_t mask = 0;  // of signals
};

bool StoppedThread::is_supported() { return true; }

std::span<const std::byte> StoppedThread::stub() { return {torchprof_stub_begin, torchprof_stub_end}; }

StoppedThread::StoppedThread(const Image& image, const StopPlaces& places, uint32_t tid)
    : image_(image), places_(places), tid_(tid), before_(std::make_unique<Registers>()) {
  if (ptrace(PTRACE_SEIZE, tid_, nullptr, nullptr) != 0)
    throw Error("thread " + std::to_string(tid_) + " cannot be stopped: " + std::strerror(errno));
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child, &before_->our_mask);
  begin_ = steady_clock::now();
  ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr);
  iovec vectors{before_->vectors.data(), before_->vectors.size()};
  try {
    wait_for_interrupt();
    if (ptrace(PTRACE_GETREGS, tid_, nullptr, &before_->general) != 0 ||
        ptrace(PTRACE_GETREGSET, tid_, NT_X86_XSTATE, &vectors) != 0 ||
        ptrace(PTRACE_GETSIGMASK, tid_, sizeof(before_->mask), &before_->mask) != 0)
      throw Error("the registers of thread " + std::to_string(tid_) + " cannot be read: " + std::strerror(errno));
  } catch (const Error&) {
    ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_->our_mask, nullptr);
    throw;
  }
  before_->vectors_size = vectors.iov_len;
}

StoppedThread::~StoppedThread() {
  restore();
  ptrace(PTRACE_DETACH, tid_, nullptr, held_signal_);
  pthread_sigmask(SIG_SETMASK, &before_->our_mask, nullptr);
}

void StoppedThread::restore() noexcept {
  user_regs_struct general = before_->general;
  const auto number = static_cast<long>(general.orig_rax);
  if (static_cast<long>(general.rax) == -EINTR && number >= 0 && is_never_restarted(number)) {
    general.rax = general.orig_rax;
    general.orig_rax = ~0ull;
    general.rip -= kSyscall.size();
  }
  const iovec vectors{before_->vectors.data(), before_->vectors_size};
  ptrace(PTRACE_SETREGSET, tid_, NT_X86_XSTATE, &vectors);
  ptrace(PTRACE_SETREGS, tid_, nullptr, &general);
  ptrace(PTRACE_SETSIGMASK, tid_, sizeof(before_->mask), &before_->mask);
}

// The stop that we have asked for. A signal that comes at the same time is reported first, and delivered.
void StoppedThread::wait_for_interrupt() {
  for (;;) {
    const int status = wait(kUntilStopped, "did not stop");
    const int signal = WSTOPSIG(status);
    if (status >> 16 == PTRACE_EVENT_STOP && signal == SIGTRAP) return;
    if (status >> 16 == PTRACE_EVENT_STOP)
      throw Error("it is stopped (SIGSTOP): kill -CONT " + std::to_string(image_.pid()));
    ptrace(PTRACE_CONT, tid_, nullptr, status >> 16 == 0 ? signal : 0);
  }
}

int StoppedThread::wait(milliseconds patience, const char* what) {
  const auto deadline = steady_clock::now() + patience;
  for (;;) {
    int status = 0;
    const pid_t found = waitpid(static_cast<pid_t>(tid_), &status, __WALL | WNOHANG);
    if (found == static_cast<pid_t>(tid_) && WIFSTOPPED(status)) return status;
    if (found != 0) throw Error("thread " + std::to_string(tid_) + " has ended");
    if (steady_clock::now() > deadline) throw Error("thread " + std::to_string(tid_) + " " + what);
    wait_for_change();
  }
}

uint64_t StoppedThread::instruction() const { return before_->general.rip; }

microseconds StoppedThread::stopped_for() const { return duration_cast<microseconds>(steady_clock::now() - begin_); }

bool StoppedThread::rests_safely() const {
  const user_regs_struct& r = before_->general;
  const auto number = static_cast<long>(r.orig_rax);
  if (number < 0 || !is_resting(number) || static_cast<long>(r.rax) >= 0) return false;
  std::vector<uint64_t> words(2048);
  const Mapping* const stack = image_.at(r.rsp);
  if (!stack) return false;
  words.resize(std::min<size_t>(words.size(), (stack->end - r.rsp) / sizeof(uint64_t)));
  if (!image_.read(r.rsp, words.data(), words.size() * sizeof(uint64_t))) return false;
  const auto is_in_lock_code = [this, number](uint64_t word) {
    const auto holds = [word](const auto& code) { return code.first <= word && word < code.second; };
    return std::ranges::any_of(places_.loader, holds) ||
           (number == SYS_futex && std::ranges::any_of(places_.allocator, holds));
  };
  if (is_in_lock_code(r.rip)) return false;
  return std::ranges::none_of(words,
                              [&](uint64_t word) { return is_in_lock_code(word) && follows_call(image_, word); });
}

void StoppedThread::hold(int status) {
  if (status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP) held_signal_ = WSTOPSIG(status);
}

int64_t StoppedThread::system_call(long number, std::span<const uint64_t> arguments) {
  if (places_.system_call == 0) throw Error("no system call was found in its libc");
  user_regs_struct r = before_->general;
  decltype(r.rdi)* const registers[] = {&r.rdi, &r.rsi, &r.rdx, &r.r10, &r.r8, &r.r9};
  for (size_t i = 0; i < arguments.size() && i < std::size(registers); ++i) *registers[i] = arguments[i];
  r.rip = places_.system_call;
  r.rax = static_cast<unsigned long long>(number);
  r.orig_rax = ~0ull;
  const uint64_t all = ~0ull;
  ptrace(PTRACE_SETSIGMASK, tid_, sizeof(all), &all);
  if (ptrace(PTRACE_SETREGS, tid_, nullptr, &r) != 0)
    throw Error(std::string("its registers cannot be set: ") + std::strerror(errno));
  // All signals are blocked but SIGSTOP, which cannot be: it is delivered when the thread is left.
  for (;;) {
    if (ptrace(PTRACE_SINGLESTEP, tid_, nullptr, nullptr) != 0) throw Error("it has ended");
    const int status = wait(kUntilStopped, "did not return from a system call");
    ptrace(PTRACE_GETREGS, tid_, nullptr, &r);
    if (r.rip != places_.system_call) return static_cast<int64_t>(r.rax);
    hold(status);
  }
}

std::optional<uint64_t> StoppedThread::call(uint64_t function, uint64_t argument, uint64_t more,
                                            milliseconds patience) {
  user_regs_struct r = before_->general;
  constexpr uint64_t kRedZone = 128, kRoom = 1024;
  // It returns to an address at which nothing is, and the fault is ours.
  constexpr uint64_t kNowhere = 0;
  r.rsp = (r.rsp - kRedZone - kRoom) / 16 * 16 - sizeof(kNowhere);
  if (!image_.write(r.rsp, &kNowhere, sizeof(kNowhere))) throw Error("its stack cannot be written to");
  r.rip = function;
  r.rdi = argument;
  r.rsi = more;
  r.rax = 0;
  r.orig_rax = ~0ull;
  constexpr unsigned long long kDirection = 0x400;
  r.eflags &= ~kDirection;
  const uint64_t mask = ~(uint64_t{1} << (SIGSEGV - 1));
  ptrace(PTRACE_SETSIGMASK, tid_, sizeof(mask), &mask);
  if (ptrace(PTRACE_SETREGS, tid_, nullptr, &r) != 0 || ptrace(PTRACE_CONT, tid_, nullptr, nullptr) != 0)
    throw Error(std::string("its registers cannot be set: ") + std::strerror(errno));
  const auto deadline = steady_clock::now() + patience;
  for (int status = 0;;) {
    const pid_t found = waitpid(static_cast<pid_t>(tid_), &status, __WALL | WNOHANG);
    if (found < 0 || (found > 0 && !WIFSTOPPED(status))) throw Error("it has ended");
    if (found == 0 && steady_clock::now() > deadline) {
      ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr);
      wait(kUntilStopped, "did not stop");
      return std::nullopt;
    }
    if (found == 0) {
      wait_for_change();
      continue;
    }
    ptrace(PTRACE_GETREGS, tid_, nullptr, &r);
    if (WSTOPSIG(status) == SIGSEGV && status >> 16 == 0) {
      if (r.rip == kNowhere) return r.rax;
      throw Error("what was called in it has failed: signal 11");
    }
    hold(status);
    ptrace(PTRACE_CONT, tid_, nullptr, nullptr);
  }
}

std::vector<uint32_t> threads_that_rest(uint32_t pid) {
  std::vector<std::pair<bool, uint32_t>> found;
  for (const uint32_t tid : formats::threads_of_process(pid)) {
    const std::string call = formats::read_thread_file(pid, tid, "syscall");  // "202 0x7f..."; "running"
    long number = -1;
    std::from_chars(call.data(), call.data() + call.size(), number);
    if (number < 0 || formats::read_thread_file(pid, tid, "comm").starts_with("torchprof")) continue;
    if (is_resting(number)) found.emplace_back(tid == pid, tid);
  }
  std::ranges::sort(found);  // the main thread is the last choice
  std::vector<uint32_t> out;
  for (const auto& [is_main, tid] : found) out.push_back(tid);
  return out;
}

}  // namespace torchprof::launcher
