// What the library says in the program's process: at most one line for each cause, to stderr, never to stdout, never
// through stdio.
//
// Any thread; no allocation, no lock; errno is kept.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string_view>

namespace torchprof {

// Restores errno at the end of its scope, so that the program does not see ours.
class KeepErrno {
 public:
  KeepErrno() noexcept : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

enum class Cause : uint8_t {
  kConfig,
  kOutput,
  kDiskFull,
  kSizeLimit,
  kMapping,
  kPython,
  kTorch,
  kInputs,
  kScript,
  kThread,
  kGpu,
  kSeccomp,
  kCount
};

// Writes "torchprof: <line>\n" the first time in this process that `cause` occurs; printable (printable.h).
__attribute__((format(printf, 2, 3))) void warn_once(Cause cause, const char* format, ...) noexcept;

// The same for a complete line, with "torchprof: " and the newline in it, where the stack may be small.
void say_once(Cause cause, std::string_view line) noexcept;

}  // namespace torchprof
