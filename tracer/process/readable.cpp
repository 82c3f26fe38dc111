#include "tracer/process/readable.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace torchprof {
namespace {

constexpr uintptr_t kPage = 4096;  // the smallest page; larger ones are multiples of it
constexpr int kNoSuchWay = -1;     // a `how` that rt_sigprocmask does not have

}  // namespace

// rt_sigprocmask first copies the new mask (eight bytes), then checks `how`: EFAULT if the memory cannot be read,
// EINVAL if it can. Source: kernel/signal.c of Linux, unchanged since 2.6; Abseil's AddressIsReadable does the same.
bool Readable::page(uintptr_t address) noexcept {
  const uintptr_t page = address / kPage;
  uintptr_t& known = known_[page % kKnown];
  if (known == page && page != 0) return true;
  const int saved = errno;
  const bool is_readable =
      syscall(SYS_rt_sigprocmask, kNoSuchWay, page * kPage, nullptr, sizeof(uint64_t)) != 0 && errno == EINVAL;
  errno = saved;
  if (is_readable) known = page;
  return is_readable;
}

bool Readable::bytes(const void* at, size_t size) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t p = first / kPage; size > 0 && p <= (first + size - 1) / kPage; ++p)
    if (!page(p * kPage)) return false;
  return true;
}

bool Readable::text(const char* at) noexcept {
  do {
    if (!page(reinterpret_cast<uintptr_t>(at))) return false;
    do
      if (!*at) return true;
    while (reinterpret_cast<uintptr_t>(++at) % kPage != 0);
  } while (true);
}

bool Readable::texts(char* const* array) noexcept {
  if (!array) return true;
  for (; bytes(array, sizeof(*array)); ++array) {
    if (!*array) return true;
    if (!text(*array)) return false;
  }
  return false;
}

}  // namespace torchprof
