#include "tracer/spool/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/spool/fault.h"
#include "tracer/spool/layout.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace torchprof {
namespace {

// The file grows by a half of its size, within these bounds: fallocate is rare, and little is left over at the end.
constexpr uint64_t kMinGrowth = uint64_t{256} << 10;
constexpr uint64_t kMaxGrowth = uint64_t{16} << 20;

// File systems without fallocate (NFS before 4.2, some FUSE) get their blocks by writing zeros.
bool reserve_blocks(int fd, uint64_t begin, uint64_t end) noexcept {
  if (fallocate(fd, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0) return true;
  // map_new() writes zeros over every chunk before it maps it, which reserves its blocks as well.
  return errno == EOPNOTSUPP || errno == ENOSYS;
}

// Brings zeros into the page cache in one call. A page fault on reserved but unwritten blocks costs about 7 us for
// every 4 KiB (ext4, Linux 6.18), this and the mapping together 1.4 us. On file systems without fallocate it is also
// what finds the disk full.
bool write_zeros(int fd, uint64_t offset, size_t size) noexcept {
  static const char page[4096] = {};
  iovec pieces[size_t{kRunChunks} * kChunkSize / sizeof(page)];
  const size_t count = size / sizeof(page);
  for (size_t i = 0; i < count; ++i) pieces[i] = {const_cast<char*>(page), sizeof(page)};
  const ssize_t written = pwritev(fd, pieces, static_cast<int>(count), static_cast<off_t>(offset));
  if (written == static_cast<ssize_t>(size)) return true;
  if (written >= 0) errno = ENOSPC;
  return false;
}

bool map_into(void*& memory, int fd, uint64_t offset, size_t size) noexcept {
  memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) memory = nullptr;
  return memory != nullptr;
}

// One call instead of a page fault every 4 KiB in the hot path; on kernels that do not know it the faults stay. EFAULT:
// a store would raise SIGBUS.
void* populated(void* memory, size_t size) noexcept {
  if (madvise(memory, size, MADV_POPULATE_WRITE) == 0 || errno != EFAULT) return memory;
  munmap(memory, size);
  errno = ENOSPC;
  return nullptr;
}

}  // namespace

uint64_t page_size() noexcept { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

bool SpoolFile::create(const char* path) noexcept {
  snprintf(path_, sizeof(path_), "%s", path);
  reserved_.store(0, std::memory_order_relaxed);
  held_.store(-1, std::memory_order_relaxed);
  return descriptors::with_file(path, O_RDWR | O_CREAT | O_EXCL, [this](int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return false;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    may_fault_ = spool_fault::is_possible(fd);
    return true;
  });
}

void SpoolFile::take(SpoolFile& other) noexcept {
  memcpy(path_, other.path_, sizeof(path_));
  device_ = other.device_;
  inode_ = other.inode_;
  held_.store(other.held_.exchange(-1, std::memory_order_relaxed), std::memory_order_relaxed);
}

bool SpoolFile::is_this(int fd) const noexcept {
  struct stat status {};
  return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

template <class Body>
bool SpoolFile::use(Body body) noexcept {
  // It may be another file by now: programs close descriptors that they did not open (daemons, closefrom).
  const int held = held_.load(std::memory_order_acquire);  // pairs with hold()'s compare_exchange: it is open
  if (is_this(held)) return descriptors::with_open(held, body);
  return descriptors::with_file(path_, O_RDWR, [&](int fd) {
    if (is_this(fd)) return body(fd);
    errno = ENOENT;
    return false;
  });
}

bool SpoolFile::reserve(uint64_t end, uint64_t limit, bool is_ahead_free) noexcept {
  if (reserved_.load(std::memory_order_acquire) >= end) return true;  // pairs with the release below: it is reserved
  return use([&](int fd) {                                            // one thread at a time
    const uint64_t have = reserved_.load(std::memory_order_relaxed);
    if (have >= end) return true;
    const uint64_t ahead = is_ahead_free ? std::clamp(have / 2, kMinGrowth, kMaxGrowth) : 0;
    const uint64_t want = std::min(std::max(end, have + ahead), std::max(limit, end));
    // The last few blocks of a nearly full disk are still good for what is needed now.
    uint64_t got = reserve_blocks(fd, have, want) ? want : 0;
    if (got == 0 && (errno == ENOSPC || errno == EDQUOT) && want != end && reserve_blocks(fd, have, end)) got = end;
    if (got == 0) return false;
    reserved_.store(got, std::memory_order_release);  // pairs with the acquire above in another thread
    return true;
  });
}

void* SpoolFile::map_new(uint64_t offset, size_t size) noexcept {
  void* memory = nullptr;
  const bool is_mapped =
      use([&](int fd) { return write_zeros(fd, offset, size) && map_into(memory, fd, offset, size); });
  return is_mapped ? populated(memory, size) : nullptr;
}

void* SpoolFile::map(uint64_t offset, size_t size) noexcept {
  void* memory = nullptr;
  return use([&](int fd) { return map_into(memory, fd, offset, size); }) ? populated(memory, size) : nullptr;
}

bool SpoolFile::read(uint64_t offset, void* to, size_t size) noexcept {
  return use([&](int fd) { return pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size); });
}

void SpoolFile::hold() noexcept {
  const seal::Calls calls;
  if (!calls) return;
  if (is_this(held_.load(std::memory_order_relaxed))) return;
  int fd = open(path_, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  fd = is_this(fd) ? descriptors::move_away(fd) : fd;
  int before = held_.load(std::memory_order_relaxed);
  // Another thread may have come here too. The release pairs with the load in use() and the exchange in let_go(), the
  // acquire with either exchange in another thread: a descriptor is open as long as it stands here.
  if (!is_this(fd) || is_this(before) || !held_.compare_exchange_strong(before, fd, std::memory_order_acq_rel))
    close(fd);
}

// Pairs with hold()'s compare_exchange: it is open.
bool SpoolFile::is_held() const noexcept { return is_this(held_.load(std::memory_order_acquire)); }

void SpoolFile::let_go() noexcept {
  const int fd = held_.exchange(-1, std::memory_order_acq_rel);  // pairs with hold()'s compare_exchange
  if (is_this(fd)) close(fd);
}

}  // namespace torchprof
