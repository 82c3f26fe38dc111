// Preloaded before the library: a disk on which a file grows twice, and then no more.
#include <errno.h>
#include <sys/types.h>

static int times;

static int grow(void) {
  if (__atomic_add_fetch(&times, 1, __ATOMIC_RELAXED) <= 2) return 0;
  errno = ENOSPC;
  return -1;
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  (void)fd, (void)offset, (void)length;
  return mode != 0 ? 0 : grow();  // with a mode it is what is kept for the list of the uncaptured
}

int fallocate64(int fd, int mode, off_t offset, off_t length) { return fallocate(fd, mode, offset, length); }
