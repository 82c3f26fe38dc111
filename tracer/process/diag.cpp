#include "tracer/process/diag.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "tracer/process/printable.h"
#include "tracer/process/seal.h"

namespace torchprof {

namespace {

// False in a sealed process: there nothing can be written any more.
bool is_first(Cause cause) noexcept {
  if (seal::is_sealed()) return false;
  static std::atomic<uint32_t> said{0};
  const uint32_t bit = 1u << static_cast<uint32_t>(cause);
  return !(said.fetch_or(bit, std::memory_order_relaxed) & bit);
}

}  // namespace

void say_once(Cause cause, std::string_view line) noexcept {
  if (!is_first(cause)) return;
  const KeepErrno keep;
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

void warn_once(Cause cause, const char* format, ...) noexcept {
  if (!is_first(cause)) return;
  const KeepErrno keep;
  char line[1024] = "torchprof: ";
  const size_t prefix = strlen(line);
  va_list args;
  va_start(args, format);
  const int wanted = vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, args);
  va_end(args);
  if (wanted < 0) return;
  const size_t length = std::min(prefix + static_cast<size_t>(wanted), sizeof(line) - 2);
  make_printable(line + prefix, length - prefix);  // it may name a path
  line[length] = '\n';
  // One write, so that lines of several threads do not mix. Nothing can be done about a closed stderr.
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line, length + 1);
}

}  // namespace torchprof
