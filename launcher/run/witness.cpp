#include "launcher/run/witness.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>

#include "formats/io/process_files.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

namespace {

// The fields arg_start and arg_end of /proc/self/stat (proc(5)): what others see as the command line.
void forget_arguments() {
  constexpr int kArgStart = 48, kFirstBehindName = 3;
  std::istringstream fields(formats::stat_behind_name("self"));
  std::string skipped;
  for (int i = kFirstBehindName; i < kArgStart; ++i) fields >> skipped;
  uintptr_t begin = 0, end = 0;
  if (fields >> begin >> end && begin != 0 && begin < end)
    std::memset(reinterpret_cast<void*>(begin), 0, end - begin);  // NOLINT: the kernel says where
}

}  // namespace

void Witness::start() {
  const pid_t launcher = getpid();
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "signal witness");
    forget_arguments();
    if (getppid() != launcher) _exit(0);
    // It holds nothing open: others may wait for the end of a pipe, or for a lock.
    if (syscall(__NR_close_range, 0, ~0U, 0) != 0)
      for (int fd = 0; fd < 1024; ++fd) close(fd);
    for (;;) pause();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

void Witness::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool Witness::saw(int signal) {
  if (pid_ <= 0) return false;
  const std::string status = formats::read_process_file(static_cast<uint32_t>(pid_), "status");
  const std::string_view signals = formats::status_value(status, "ShdPnd");
  uint64_t pending = 0;
  std::from_chars(signals.data(), signals.data() + signals.size(), pending, 16);
  if ((pending >> (signal - 1) & 1) == 0) return false;
  end();
  start();
  return true;
}

}  // namespace torchprof::launcher
