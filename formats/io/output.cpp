#include "formats/io/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <thread>

#include "formats/io/error.h"
#include "formats/io/gzip.h"

namespace torchprof::formats {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferSize = size_t{256} * 1024;
static_assert(kBufferSize >= Output::kMaxReserve && kBufferSize <= Gzip::kChunk);

constexpr std::string_view kMark = ".torchprof-", kEnd = ".tmp";
constexpr int kMostTries = 100;
constexpr auto kPatience = std::chrono::seconds(5);  // with whoever is to read from a FIFO

fs::path temporary_name(const fs::path& file, int number) {
  std::string end(kMark);
  end.append(std::to_string(getpid()));
  if (number != 0) end.append("-").append(std::to_string(number));
  end.append(kEnd);
  std::string name = file.filename();
  name.resize(std::min(name.size(), NAME_MAX - end.size()));
  return file.parent_path() / name.append(end);
}

// Opening a FIFO that nobody reads would wait for ever, but its reader may be about to come. -1: nobody came.
int open_fifo(const fs::path& file) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const int fd = ::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if (fd >= 0 || errno != ENXIO || std::chrono::steady_clock::now() > end) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// A rename() that replaces nothing. Not every file system can do that; some of the others can make hard links.
bool rename_beside(const char* from, const char* to) {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (link(from, to) == 0) return unlink(from) == 0;
  if (errno == EEXIST || access(to, F_OK) == 0) return false;
  return std::rename(from, to) == 0;
}

}  // namespace

fs::path Output::temporary_of(const fs::path& file) { return temporary_name(file, 0); }

bool Output::is_temporary(std::string_view name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || !name.ends_with(kEnd) || name.size() <= mark + kMark.size() + kEnd.size())
    return false;
  const std::string_view number = name.substr(mark + kMark.size(), name.size() - mark - kMark.size() - kEnd.size());
  return number.find_first_not_of("0123456789-") == std::string_view::npos;
}

int Output::writer_of(std::string_view name) {
  int pid = 0;
  if (is_temporary(name)) {
    const std::string_view number = name.substr(name.rfind(kMark) + kMark.size());
    std::from_chars(number.data(), number.data() + number.size(), pid);
  }
  return std::max(pid, 0);
}

// A temporary file that an earlier process with our process id left behind stays.
Output::Output(const fs::path& file, Existing existing)
    : file_(file), temporary_(file), existing_(existing), buffer_(file.extension() == ".gz" ? 0 : kBufferSize) {
  std::error_code ignored;
  if (existing == Existing::kKept && fs::exists(fs::symlink_status(file, ignored))) fail_for_existing();
  const bool is_file = !fs::exists(file, ignored) || fs::is_regular_file(file, ignored);
  if (existing == Existing::kOwn && !is_file)
    throw Error(file.string() + ": is not a file any more; remove it, or name a file with -o");
  if (!is_file && fs::is_fifo(file, ignored)) {
    fd_ = open_fifo(file);
    if (fd_ < 0 && errno == ENXIO) throw Error("cannot write " + file.string() + ": nobody reads from this FIFO");
    if (fd_ < 0) fail("cannot write", errno);
  }
  for (int i = 0; fd_ < 0; ++i) {
    if (is_file) temporary_ = temporary_name(file, i);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (is_file ? O_EXCL | O_NOFOLLOW : O_TRUNC), 0666);
    if (fd_ < 0 && (errno != EEXIST || !is_file || i == kMostTries)) fail("cannot create", errno);
  }
  if (buffer_.empty())
    gzip_ = std::make_unique<Gzip>([this](std::string_view data) { write_all(data.data(), data.size()); });
  use(gzip_ ? gzip_->room() : buffer_.data());
}

Output::Output(std::string& memory) : memory_(&memory), buffer_(kBufferSize) { use(buffer_.data()); }

void Output::use(char* buffer) {
  begin_ = at_ = buffer;
  end_ = begin_ + kBufferSize;
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

void Output::fail_for_existing() {
  discard();
  throw Error(file_.string() + ": exists and is not this run's, so it is kept; remove it, or name a file with -o");
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
  const auto size = static_cast<size_t>(at_ - begin_);
  at_ = begin_;
  flushed_ += size;
  if (memory_ != nullptr) {
    memory_->append(begin_, size);
    written_ += size;
  } else if (gzip_) {
    gzip_->add(size);
    use(gzip_->room());
  } else {
    write_all(begin_, size);
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
  const auto appear = [this] {
    if (existing_ == Existing::kKept) return rename_beside(temporary_.c_str(), file_.c_str());
    return temporary_ == file_ || std::rename(temporary_.c_str(), file_.c_str()) == 0;
  };
  if (::close(fd) != 0 || !appear()) {
    const int error = errno;
    remove_temporary();
    if (error == EEXIST && existing_ == Existing::kKept) fail_for_existing();
    fail("cannot write", error);
  }
}

}  // namespace torchprof::formats
