#include "formats/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "formats/error.h"
#include "formats/gzip.h"

namespace torchprof::formats {
namespace {

constexpr size_t kBufferSize = size_t{256} * 1024;
static_assert(kBufferSize >= Output::kMaxReserve && kBufferSize <= Gzip::kChunk);

}  // namespace

Output::Output(const std::filesystem::path& file) : file_(file), temporary_(file), buffer_(kBufferSize) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored) || std::filesystem::is_regular_file(file, ignored)) temporary_ += ".tmp";
  at_ = buffer_.data();
  end_ = at_ + buffer_.size();
  // A temporary name is ours: what lies there is left over, and is never written through.
  int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  if (temporary_ != file_) {
    ::unlink(temporary_.c_str());
    flags |= O_EXCL | O_NOFOLLOW;
  }
  fd_ = ::open(temporary_.c_str(), flags, 0666);
  if (fd_ < 0) fail("cannot create", errno);
  if (file.extension() == ".gz")
    gzip_ = std::make_unique<Gzip>([this](std::string_view data) { write_all(data.data(), data.size()); });
}

Output::Output(std::string& memory) : memory_(&memory), buffer_(kBufferSize) {
  at_ = buffer_.data();
  end_ = at_ + buffer_.size();
}

Output::~Output() { discard(); }

void Output::discard() noexcept {
  if (fd_ >= 0) {
    ::close(fd_);
    remove_temporary();
  }
  fd_ = -1;
}

void Output::remove_temporary() noexcept {
  if (temporary_ != file_) ::unlink(temporary_.c_str());
}

void Output::fail(const std::string& what, int error) {
  discard();
  throw Error(what + " " + file_.string() + ": " + std::strerror(error));
}

void Output::write(std::string_view text) {
  while (!text.empty()) {
    if (at_ == end_) flush();
    const size_t n = std::min(text.size(), static_cast<size_t>(end_ - at_));
    std::memcpy(at_, text.data(), n);
    at_ += n;
    text.remove_prefix(n);
  }
}

void Output::flush() {
  const auto size = static_cast<size_t>(at_ - buffer_.data());
  at_ = buffer_.data();
  flushed_ += size;
  sink(buffer_.data(), size);
}

void Output::sink(const char* data, size_t size) {
  if (memory_ != nullptr) {
    memory_->append(data, size);
    written_ += size;
  } else if (gzip_) {
    gzip_->add({data, size});
  } else {
    write_all(data, size);
  }
}

void Output::write_all(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write", errno);
    data += n;
    size -= static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

void Output::commit() {
  flush();
  if (memory_ != nullptr) return;
  if (gzip_) gzip_->finish();
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0 || (temporary_ != file_ && std::rename(temporary_.c_str(), file_.c_str()) != 0)) {
    const int error = errno;
    remove_temporary();
    fail("cannot write", error);
  }
}

}  // namespace torchprof::formats
