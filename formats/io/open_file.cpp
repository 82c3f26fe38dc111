#include "formats/io/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "formats/io/error.h"

namespace torchprof::formats {
namespace {

const char* text_of(mode_t mode) {
  if (S_ISDIR(mode)) return "it is a directory, not a file";
  if (S_ISFIFO(mode)) return "it is a FIFO (a pipe), not a file: save its content to a file first";
  if (S_ISSOCK(mode)) return "it is a socket, not a file";
  return "it is a device, not a file";
}

}  // namespace

int open_file(const std::filesystem::path& path, std::string& error) {
  struct stat status {};
  // Asked before opening, because opening a device can do something, and after it, because the name may by then be
  // another file's.
  if (stat(path.c_str(), &status) != 0) {
    error = std::strerror(errno);
    return -1;
  }
  if (!S_ISREG(status.st_mode)) {
    error = text_of(status.st_mode);
    return -1;
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, &status) != 0) {
    error = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    error = text_of(status.st_mode);
  } else {
    // Some network file systems return EAGAIN where they would otherwise wait.
    fcntl(fd, F_SETFL, O_RDONLY);
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::string& error) {
  const int fd = open_file(path, error);
  if (fd < 0) return std::nullopt;
  std::string text;
  char part[16384];
  ssize_t n;
  while ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) text.append(part, static_cast<size_t>(n));
  if (n < 0) error = std::strerror(errno);
  close(fd);
  return n < 0 ? std::nullopt : std::optional(std::move(text));
}

std::string read_file(const std::filesystem::path& path) {
  std::string error;
  return read_file(path, error).value_or(std::string());
}

std::filesystem::path absolute_path(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (error) throw Error(path.string() + ": the working directory: " + error.message());
  return absolute;
}

}  // namespace torchprof::formats
