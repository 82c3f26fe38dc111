#include "tracer/spool/run_budget.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tracer/process/descriptors.h"
#include "tracer/spool/run_files.h"

namespace torchprof {

void RunBudget::open(const char* directory, uint64_t bytes) noexcept {
  limit_ = bytes / kChunkSize;
  uncounted_.store(0, std::memory_order_relaxed);
  if (snprintf(path_, sizeof(path_), "%s/%s", directory, kUsedName) >= static_cast<int>(sizeof(path_))) limit_ = 0;
}

bool RunBudget::take(uint32_t chunks) noexcept {
  if (limit_ == 0) return true;
  static const char zeros[256] = {};
  bool fits = true;
  const bool is_counted = descriptors::with_file(path_, O_WRONLY | O_APPEND | O_CREAT, [&](int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return false;
    fits = static_cast<uint64_t>(status.st_size) + chunks <= limit_;
    if (!fits) return true;
    const uint32_t more = chunks + uncounted_.exchange(0, std::memory_order_relaxed);
    const ssize_t counted = write(fd, zeros, std::min<size_t>(more, sizeof(zeros)));
    uncounted_.fetch_add(more - static_cast<uint32_t>(std::max<ssize_t>(0, counted)), std::memory_order_relaxed);
    return true;
  });
  if (!is_counted) uncounted_.fetch_add(chunks, std::memory_order_relaxed);
  return fits;
}

}  // namespace torchprof
