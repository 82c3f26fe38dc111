#include "tracer/spool/uncaptured.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "tracer/spool/clock.h"

namespace torchprof::uncaptured {
namespace {

constexpr int kCommand = 160;  // bytes of a command that are shown

// Follows no symbolic link, neither for the list nor for its directory.
int open_list(const char* directory, int flags) noexcept {
  const int folder = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = openat(folder, kUncapturedName, kFlags | flags, 0600);
  close(folder);
  return fd;
}

// Beyond RLIMIT_FSIZE a write or a reservation would kill the program.
bool may_reach(uint64_t size) noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && size <= limit.rlim_cur;
}

void read_printable_command(char (&text)[kCommand + 1]) noexcept {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : read(fd, text, kCommand);
  if (fd >= 0) close(fd);
  while (size > 0 && text[size - 1] == 0) --size;
  for (ssize_t i = 0; i < size; ++i)
    if (static_cast<unsigned char>(text[i]) < ' ') text[i] = text[i] == 0 ? ' ' : '?';
  text[size < 0 ? 0 : size] = 0;
}

}  // namespace

void reserve(const char* directory) noexcept {
  if (!may_reach(kUncapturedRoom)) return;
  const int fd = open_list(directory, O_EXCL);
  if (fd < 0) return;
  // Blocks beyond the end of the file: what is appended goes into them.
  fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, kUncapturedRoom);
  close(fd);
}

void add(const char* directory, LossCause cause, int error, bool is_forked) noexcept {
  const int fd = open_list(directory, 0);
  if (fd < 0) return;
  char command[kCommand + 1], line[kCommand + 120];
  read_printable_command(command);
  const int size = snprintf(line, sizeof(line), "\n%d\t%d\t%lld\t%d\t%d\t%d\t%s", static_cast<int>(getpid()),
                            static_cast<int>(getppid()), static_cast<long long>(clock::read_ns(CLOCK_REALTIME)),
                            static_cast<int>(cause), error, is_forked ? 1 : 0, command);
  struct stat status {};
  const bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const auto used = static_cast<uint64_t>(status.st_size);
  const bool fits = used + static_cast<uint64_t>(size) <= kUncapturedLines;
  if (is_file && used < kUncapturedRoom && may_reach(kUncapturedRoom)) {
    // If there is no room for the line, there may be for the byte that counts it.
    if (!fits || write(fd, line, static_cast<size_t>(size)) != size) {
      [[maybe_unused]] const ssize_t counted = write(fd, &kUncapturedMore, 1);
    }
  }
  close(fd);
}

}  // namespace torchprof::uncaptured
