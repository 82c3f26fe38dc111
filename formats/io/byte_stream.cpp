#include "formats/io/byte_stream.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "formats/io/error.h"
#include "formats/io/open_file.h"

namespace torchprof::formats {

void ByteStream::Close::operator()(gzFile_s* file) const { gzclose(file); }

ByteStream::ByteStream(const std::filesystem::path& path, const char* what) : path_(path), what_(what) {
  std::string error;
  const int fd = open_file(path, error);
  if (fd < 0) fail(error);
  file_.reset(gzdopen(fd, "rb"));
  if (!file_) {
    close(fd);
    fail("out of memory");
  }
  gzbuffer(file_.get(), 256 * 1024);
}

void ByteStream::fail(const std::string& why) const {
  throw Error(std::string("cannot read the ") + what_ + " " + path_.string() + ": " + why);
}

bool ByteStream::is_compressed() const { return gzdirect(file_.get()) == 0; }

void ByteStream::fail_too_long() const {
  fail("one value in it is longer than " + std::to_string(kLongestValue >> 20) +
       " MiB: no profiler writes that; the file is damaged or not a trace");
}

std::string ByteStream::take(size_t size) {
  std::string bytes;  // grows with what is there, not with what a length says
  while (bytes.size() < size && (at_ < size_ || fill())) {
    const size_t n = std::min(size - bytes.size(), size_ - at_);
    bytes.append(buffer_.data() + at_, n);
    at_ += n;
  }
  return bytes;
}

bool ByteStream::fill() {
  const int n = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int code = Z_OK;
  const char* message = gzerror(file_.get(), &code);
  // Of a file that is cut off there is first what can be had.
  if (n < 0 || (n == 0 && code == Z_BUF_ERROR)) {
    const std::string_view text = message == nullptr ? "" : message;
    const size_t behind = text.starts_with("<fd:") ? text.find(": ") : text.npos;  // zlib knows no name
    fail(code == Z_ERRNO       ? std::strerror(errno)
         : code == Z_BUF_ERROR ? "the compressed file is cut off"
                               : std::string(behind == text.npos ? text : text.substr(behind + 2)));
  }
  at_ = 0;
  size_ = static_cast<size_t>(n);
  return n > 0;
}

}  // namespace torchprof::formats
