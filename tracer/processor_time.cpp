#include "tracer/processor_time.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "tracer/process/descriptors.h"
#include "tracer/process/seal.h"
#include "tracer/session.h"
#include "tracer/spool/clock.h"

namespace torchprof::processor_time {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kLeastApart = 5 * kMs;
constexpr int64_t kMachineFirst = 100 * kMs, kMachineApart = 1000 * kMs;  // it says hundredths of a second
constexpr int64_t kPartOfRun = 20'000;
constexpr int64_t kOneMoment = kMs / 10;
constexpr int kMostTries = 3;

struct State {
  int64_t began = 0;  // ns, CLOCK_MONOTONIC, as all times here; 0: nothing was looked at
  int64_t last = 0;
  int64_t last_of_machine = 0;
  uint32_t processors = 0;      // of the machine that are online; 0: not known
  bool has_processors = false;  // somebody has looked
  int64_t no_queue_until = 0;   // the kernel does not say how long a thread was ready, or it takes too long to ask
};
constinit State g_state{};
std::atomic<OperatorThreads> g_operator_threads{nullptr};

// The file's first bytes as text; empty: it cannot be read. Where there are no descriptors left, another process reads
// it (descriptors.h), and "self" is that one. False: it was so.
template <size_t kSize>
bool read_text(const char* path, char (&text)[kSize]) noexcept {
  const pid_t pid = getpid();
  bool is_own = true;
  descriptors::with_file(path, O_RDONLY, [&](int fd) {
    is_own = getpid() == pid;
    const ssize_t n = read(fd, text, kSize - 1);
    text[std::max<ssize_t>(n, 0)] = 0;
    return n > 0;
  });
  return is_own;
}

uint64_t queued(int64_t now) noexcept {
  State& s = g_state;
  if (now < s.no_queue_until) return ProcessorTime::kNotKnown;
  char text[80] = "";
  errno = 0;
  if (!read_text("/proc/thread-self/schedstat", text)) {
    s.no_queue_until = now + kMachineApart;
    return ProcessorTime::kNotKnown;
  }
  char* at = text;
  strtoull(at, &at, 10);
  const bool has_second = *at == ' ';
  const uint64_t queued = has_second ? strtoull(at, &at, 10) : 0;
  const uint64_t times = has_second ? strtoull(at, &at, 10) : 0;  // that it got a processor
  if (times != 0) return queued;
  if (has_second || errno == ENOENT) s.no_queue_until = INT64_MAX;
  return ProcessorTime::kNotKnown;
}

// "0-3,8-11"
uint32_t count_processors() noexcept {
  char text[1024] = "";
  read_text("/sys/devices/system/cpu/online", text);
  uint64_t count = 0;
  for (char* at = text; *at >= '0' && *at <= '9'; at += *at == ',') {
    const uint64_t first = strtoull(at, &at, 10), last = *at == '-' ? strtoull(at + 1, &at, 10) : first;
    count += last >= first ? last - first + 1 : 0;
  }
  return static_cast<uint32_t>(count);
}

// On which the calling thread may run.
uint32_t allowed_processors() noexcept {
  uint64_t mask[1024 / 64 * 8] = {};  // the kernel refuses one that is smaller than its own
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
  uint32_t count = 0;
  for (long i = 0; i < bytes / 8; ++i) count += static_cast<uint32_t>(__builtin_popcountll(mask[i]));
  return count;
}

void look_at_machine() noexcept {
  State& s = g_state;
  if (!s.has_processors) s.processors = count_processors();
  s.has_processors = true;
  char text[64] = "";
  read_text("/proc/uptime", text);  // "60809.30 14769.90"
  char* at = text;
  while (*at && *at != ' ') ++at;
  if (*at != ' ' || s.processors == 0) return;
  uint64_t idle = strtoull(at, &at, 10) * 1'000'000'000;
  if (*at == '.') idle += strtoull(at + 1, nullptr, 10) * 10'000'000;
  MachineTime use{};
  use.idle = idle;
  use.processors = s.processors;
  use.allowed = allowed_processors();
  if (const OperatorThreads threads = g_operator_threads.load(std::memory_order_relaxed))
    use.operator_threads = static_cast<uint32_t>(std::max(0, threads()));
  session::record_machine_time(use, session::now());
}

}  // namespace

void ask(OperatorThreads threads) noexcept { g_operator_threads.store(threads, std::memory_order_relaxed); }

void look(uint64_t thread, int64_t now, bool in_window) noexcept {
  State& s = g_state;
  if (s.began == 0) s.began = now;
  const int64_t apart = in_window ? kLeastApart : std::max(kLeastApart, (now - s.began) / kPartOfRun);
  if ((s.last != 0 && now - s.last < apart) || thread != pthread_self()) return;
  const seal::Calls calls;
  if (!calls) return;
  s.last = now;
  ProcessorTime use{};
  use.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  Ticks at;
  // All of one moment: where the thread lost its processor meanwhile, once more.
  for (int tries = 0; tries < kMostTries; ++tries) {
    const int64_t begin = clock::read_ns(CLOCK_MONOTONIC);
    use.queued = queued(now);
    use.ran = static_cast<uint64_t>(clock::read_ns(CLOCK_THREAD_CPUTIME_ID));
    use.process_ran = static_cast<uint64_t>(clock::read_ns(CLOCK_PROCESS_CPUTIME_ID));
    at = session::now();
    if (clock::read_ns(CLOCK_MONOTONIC) - begin < kOneMoment) break;
  }
  if (!session::record_processor_time(use, at)) return;
  // Soon in a run that may be short, each second in one that goes on.
  const int64_t machine_apart = std::clamp(now - s.began, kMachineFirst, kMachineApart);
  if (s.last_of_machine != 0 && now - s.last_of_machine < std::max(machine_apart, apart)) return;
  s.last_of_machine = now;
  look_at_machine();
}

uint64_t resident() noexcept {
  char text[128] = "";
  const seal::Calls calls;
  if (!calls) return 0;
  read_text("/proc/self/statm", text);
  char* at = text;
  strtoull(at, &at, 10);
  return *at == ' ' ? strtoull(at, nullptr, 10) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

void after_fork_in_child() noexcept { g_state = State{}; }

}  // namespace torchprof::processor_time
