// What a thread does, by the kernel's account: how long it ran and was ready to, and what it waits for.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tracer/process/own_thread.h"
#include "tracer/python/threads.h"
#include "tracer/sampler/seen.h"
#include "tracer/session.h"

namespace torchprof::sampler {
namespace {

// Opens, reads and closes it, or keeps it in `kept`.
template <size_t kSize>
bool read_file(const char* path, char (&text)[kSize], int* kept = nullptr) noexcept {
  Sampling& s = g_sampling;
  int fd = kept ? *kept : -1;
  const bool is_new = fd < 0;
  if (is_new) fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = pread(fd, text, kSize - 1, 0);
  text[std::max<ssize_t>(n, 0)] = 0;
  if (is_new && kept && s.has_own_table && s.kept < kMostKept) {
    *kept = fd;
    ++s.kept;
  } else if (is_new) {
    close(fd);
  }
  return n > 0;
}

SampledWait kind_of_call(long number) noexcept {
  switch (number) {
    case SYS_clock_nanosleep:
    case SYS_nanosleep:
      return SampledWait::kSleep;
    case SYS_futex:
      return SampledWait::kLock;
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
#endif
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
      return SampledWait::kPoll;
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_preadv:
      return SampledWait::kRead;
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_pwritev:
      return SampledWait::kWrite;
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
      return SampledWait::kSocket;
    case SYS_wait4:
    case SYS_waitid:
      return SampledWait::kChild;
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_sync_file_range:
      return SampledWait::kDisk;
    default:
      return SampledWait::kOther;
  }
}

bool is_poll(long number) noexcept {
#ifdef SYS_poll
  if (number == SYS_poll) return true;
#endif
  return number == SYS_ppoll;
}

}  // namespace

bool read_queued(Seen& seen, uint64_t& queued) noexcept {
  char text[80];
  if (!read_file(ProcPath("/proc/self/task/", seen.thread.tid, "/schedstat").get(), text, &seen.schedstat))
    return false;
  char* at = text;
  strtoull(at, &at, 10);
  if (*at != ' ') return false;
  queued = strtoull(at, &at, 10);
  return *at == ' ' && strtoull(at, nullptr, 10) != 0;
}

bool read_ran(uint32_t tid, uint64_t& ran) noexcept {
  constexpr clockid_t kOfThread = 4, kByScheduler = 2;  // CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
  timespec time;
  if (clock_gettime(static_cast<clockid_t>(~tid << 3) | kOfThread | kByScheduler, &time) != 0) return false;
  ran = static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
  return true;
}

// The process's first thread stays as a zombie until all others have ended. The directory's links are its entries.
bool only_ours_are_left() noexcept {
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink < 2) return false;
  if (tasks.st_nlink - 2 > OwnThread::running() + 1) return false;
  char text[64] = "";  // "4711 (python3) Z ..."
  return read_file(ProcPath("/proc/self/task/", static_cast<uint32_t>(getpid()), "/stat").get(), text) &&
         strstr(text, ") Z ");
}

void ask_what_it_waits_for(const ProcessMemory& memory, Seen& seen) noexcept {
  seen.wait = SampledWait::kUnknown;
  seen.what = 0;
  seen.name = {};
  char text[160];  // "202 0x7f00 0x189 ...", or "running"
  if (!read_file(ProcPath("/proc/self/task/", seen.thread.tid, "/syscall").get(), text) || text[0] < '0' ||
      text[0] > '9')
    return;
  char* at = text;
  const long number = strtol(at, &at, 10);
  const uint64_t first = strtoull(at, &at, 16), second = strtoull(at, &at, 16);
  const uint64_t gil = g_sampling.gil;
  seen.wait = kind_of_call(number);
  switch (seen.wait) {
    case SampledWait::kLock:
      seen.what = static_cast<uint32_t>(first);
      if (gil == 0 || first - gil >= python::kBytesOfGil) return;
      seen.wait = SampledWait::kGil;
      seen.what = 0;
      if (uint64_t state[2] = {}; memory.get(gil + python::kGilHolder, state) && static_cast<uint32_t>(state[1]) == 1)
        for (size_t i = 0; i < g_looks.count; ++i)
          if (g_looks.threads[i].thread.state == state[0]) seen.what = g_looks.threads[i].thread.tid;
      static_assert(python::kGilIsLocked == python::kGilHolder + sizeof(uint64_t));
      return;
    case SampledWait::kPoll:
      // As sockets with a timeout are waited for. A pollfd begins with the descriptor.
      if (int32_t fd = -1; is_poll(number) && second == 1 && memory.get(first, fd) && fd >= 0) {
        seen.what = static_cast<uint32_t>(fd);
        seen.name = name_of_descriptor(seen.what);
      }
      return;
    case SampledWait::kRead:
    case SampledWait::kWrite:
    case SampledWait::kSocket:
    case SampledWait::kDisk:
      seen.what = static_cast<uint32_t>(first);
      seen.name = name_of_descriptor(seen.what);
      return;
    case SampledWait::kChild:
      // wait4(pid, ...), waitid(P_PID, pid, ...)
      seen.what = static_cast<uint32_t>(number == SYS_waitid ? (first == 1 ? second : 0)
                                                             : (static_cast<int32_t>(first) > 0 ? first : 0));
      if (seen.what != 0) seen.name = name_of_child(seen.what);
      return;
    case SampledWait::kOther:
      seen.what = static_cast<uint32_t>(number);
      return;
    default:
      return;
  }
}

}  // namespace torchprof::sampler
