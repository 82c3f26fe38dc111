// What the library says in the program's process: at most one line for each cause, to stderr, never to stdout, never
// through stdio. What is the same for all processes of a run is said by the first of them alone.
//
// Any thread; no allocation; errno is kept. tell_once_a_run() opens a file (descriptors.h), the others take no lock.
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
  kNewPython,
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

// Once, before tell_once_a_run(): `path` is a file that all processes of the run share, and that the first one makes;
// what is longer than PATH_MAX, or cannot be written, is no such file, and then each process speaks for itself.
// `is_quiet`: the user wants errors alone. After fork it stays as it is.
void share_lines(const char* path, bool is_quiet) noexcept;

// Once, in a process that no launcher has started: of what concerns the settings and the place `place` is said one line
// on this host for all processes of the user, however many start, and each line of tell_once_a_run() once. A small file
// in /dev/shm says what was said.
void speak_once_a_host(const char* place) noexcept;

enum class About : uint8_t { kLoss, kNotice };  // what is not recorded; what is good to know, not said to who is quiet

// As warn_once(), and only where no other process of the run has said the same line.
__attribute__((format(printf, 3, 4))) void tell_once_a_run(Cause cause, About about, const char* format, ...) noexcept;

// From now on lines are kept, where there is room, instead of being said, and each cause is new again: who attaches to
// a running program reads them, and the program's stderr is its own. The text stays where it is: "LINE\nLINE\n".
const char* keep_lines() noexcept;

// The same as warn_once() for a complete line, with "torchprof: " and the newline in it, where the stack may be small.
void say_once(Cause cause, std::string_view line) noexcept;

// The calling thread, one of ours, has descriptors of its own: a line of it goes to the stderr of the process, which it
// asks the kernel for (pidfd_getfd(2), Linux 5.6).
void borrow_stderr() noexcept;

}  // namespace torchprof
