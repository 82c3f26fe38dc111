// A directory that only this user can read, for as long as the object lives, and no longer than the process: a child
// removes it where the process ends without a destructor (Ctrl-C, kill -9). Throws Error.
//
// The directory lies where TMPDIR says, or in /tmp. Where no child can be had, a signal leaves the directory behind.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace torchprof::launcher {

class TemporaryDirectory {
 public:
  // `begin`: of its name.
  explicit TemporaryDirectory(const char* begin);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  void start_child();

  std::filesystem::path path_;
  pid_t child_ = -1;
  int lifeline_ = -1;  // a pipe to the child, which nobody writes to: it ends with the process
};

}  // namespace torchprof::launcher
