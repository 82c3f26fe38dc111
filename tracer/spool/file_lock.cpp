#include "tracer/spool/file_lock.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "tracer/spool/layout.h"

namespace torchprof::spool_lock {
namespace {

// Several tries: look_for_writer() in another process holds a shared lock for a moment.
bool lock(int fd) noexcept {
  for (int i = 0; i < 10; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
    sched_yield();
  }
  return false;
}

bool is_held(int fd) noexcept { return flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

int open_to_ask(const char* path) noexcept { return open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); }

// Whether the header says that the writer held a lock.
bool was_held(int fd) noexcept {
  struct {
    uint64_t magic;
    uint8_t rest[offsetof(FileHeader, is_locked) - sizeof(magic)];
    uint8_t is_locked;
  } begin;
  static_assert(offsetof(decltype(begin), is_locked) == offsetof(FileHeader, is_locked));
  const auto size = static_cast<ssize_t>(offsetof(FileHeader, is_locked) + 1);
  return pread(fd, &begin, static_cast<size_t>(size), 0) == size && begin.magic == kSpoolMagic && begin.is_locked == 1;
}

}  // namespace

bool hold(const char* path) noexcept {
  // Open for writing: otherwise NFS gives no exclusive lock.
  const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  void* page = lock(fd) ? mmap(nullptr, kFileHeaderSize, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  const bool is_ours_alone = page != MAP_FAILED && madvise(page, kFileHeaderSize, MADV_DONTFORK) == 0;
  close(fd);
  if (page == MAP_FAILED) return false;
  const int other = is_ours_alone ? open_to_ask(path) : -1;
  const bool held = other >= 0 && is_held(other);
  if (other >= 0) close(other);
  if (!held) munmap(page, kFileHeaderSize);
  return held;
}

Writer look_for_writer(const char* path) noexcept {
  const int fd = open_to_ask(path);
  if (fd < 0) return errno == ENOENT ? Writer::kGone : Writer::kUnknown;
  struct stat status {};
  Writer writer = Writer::kUnknown;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    if (is_held(fd))
      writer = Writer::kLives;
    else if (was_held(fd))
      writer = Writer::kGone;
  }
  close(fd);
  return writer;
}

}  // namespace torchprof::spool_lock
