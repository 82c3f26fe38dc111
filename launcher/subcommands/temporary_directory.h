// A directory for as long as the object lives. Throws Error.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "formats/io/error.h"

namespace torchprof::launcher {

class TemporaryDirectory {
 public:
  // `begin`: of its name.
  explicit TemporaryDirectory(const char* begin) {
    std::error_code error;
    std::string pattern = std::filesystem::temp_directory_path(error) / (std::string(begin) + "XXXXXX");
    if (error || !mkdtemp(pattern.data()))
      throw Error(pattern + ": " + (error ? error.message() : std::strerror(errno)));
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace torchprof::launcher
