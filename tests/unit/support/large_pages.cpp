// Makes the pages of a test program LARGE_PAGE bytes large, as far as the program can tell: many AArch64 machines have
// pages of 16 or 64 KiB. The calls that map memory are refused as the kernel refuses them there, and what they map
// begins at a whole page. Unmapping takes whole pages, too.
//
// Source: mmap(2), munmap(2), madvise(2), mremap(2) of the Linux manual pages.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>

namespace {

constexpr uintptr_t kPage = LARGE_PAGE;

bool is_whole(uintptr_t value) { return value % kPage == 0; }
bool is_whole(const void* at) { return is_whole(reinterpret_cast<uintptr_t>(at)); }
uintptr_t rounded(uintptr_t value) { return (value + kPage - 1) / kPage * kPage; }
long refuse() {
  errno = EINVAL;
  return -1;
}

// Room that begins at a whole page. What lies before it stays mapped: nothing else may use it.
void* room_for(size_t size) {
  const long free = syscall(SYS_mmap, nullptr, rounded(size) + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
  return free == -1 ? MAP_FAILED : reinterpret_cast<void*>(rounded(static_cast<uintptr_t>(free)));
}

}  // namespace

extern "C" {

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  if (((flags & MAP_FIXED) && !is_whole(at)) || !is_whole(static_cast<uintptr_t>(offset)))
    return reinterpret_cast<void*>(refuse());
  if (!(flags & MAP_FIXED) && (at = room_for(size)) == MAP_FAILED) return at;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags | MAP_FIXED, fd, long{offset}));
}

int munmap(void* at, size_t size) noexcept {
  return static_cast<int>(is_whole(at) ? syscall(SYS_munmap, at, rounded(size)) : refuse());
}

int madvise(void* at, size_t size, int advice) noexcept {
  return static_cast<int>(is_whole(at) ? syscall(SYS_madvise, at, size, advice) : refuse());
}

void* mremap(void* at, size_t size, size_t new_size, int flags, ...) noexcept {
  va_list list;
  va_start(list, flags);
  void* const to = (flags & MREMAP_FIXED) ? va_arg(list, void*) : nullptr;
  va_end(list);
  if (!is_whole(at) || !is_whole(to)) return reinterpret_cast<void*>(refuse());
  return reinterpret_cast<void*>(syscall(SYS_mremap, at, rounded(size), rounded(new_size), flags, to));
}

long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE) return static_cast<long>(kPage);
  static const auto next = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  return next(name);
}
}
