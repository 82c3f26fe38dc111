// What the fuzz targets share: each defines write_seeds and LLVMFuzzerTestOneInput, and is the only source of its
// program. With --seeds DIRECTORY a target writes the corpus to begin with instead of running.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

void write_seeds(const std::filesystem::path& directory);

// The name of a file that holds the input: in memory, the same for every input, gone with the process.
inline std::string file_of(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("input", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count == 3 && strcmp((*arguments)[1], "--seeds") == 0) {
    write_seeds((*arguments)[2]);
    exit(0);
  }
  return 0;
}
