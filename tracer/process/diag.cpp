#include "tracer/process/diag.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/process/printable.h"
#include "tracer/process/seal.h"

namespace torchprof {

namespace {

constinit std::atomic<uint32_t> g_said{0};

// False in a sealed process: there nothing can be written any more.
bool is_first(Cause cause) noexcept {
  if (seal::is_sealed()) return false;
  const uint32_t bit = 1u << static_cast<uint32_t>(cause);
  return !(g_said.fetch_or(bit, std::memory_order_relaxed) & bit);
}

constinit std::atomic<bool> g_keeps{false};
constinit std::atomic<size_t> g_kept_size{0};
char g_kept[1024] = "";

// Where two threads come at the same time each has a part of the text of its own.
void keep(const char* text, size_t size) noexcept {
  size_t at = g_kept_size.load(std::memory_order_relaxed);
  do {
    if (at + size >= sizeof(g_kept)) return;
  } while (!g_kept_size.compare_exchange_weak(at, at + size, std::memory_order_relaxed));
  memcpy(g_kept + at, text, size);
}

thread_local constinit bool t_borrows_stderr = false;

// The errno is the caller's to keep.
void write_to_stderr(const char* text, size_t size) noexcept {
  if (g_keeps.load(std::memory_order_relaxed)) return keep(text, size);
  int process = -1, fd = STDERR_FILENO;
  if (t_borrows_stderr) {
    process = static_cast<int>(syscall(__NR_pidfd_open, getpid(), 0u));
    fd = process < 0 ? -1 : static_cast<int>(syscall(__NR_pidfd_getfd, process, STDERR_FILENO, 0u));
  }
  [[maybe_unused]] const ssize_t n = fd < 0 ? 0 : write(fd, text, size);
  if (t_borrows_stderr && fd >= 0) close(fd);
  if (process >= 0) close(process);
}

class Line {
 public:
  void print(const char* format, va_list args) noexcept {
    const int wanted = vsnprintf(text_ + kPrefix, sizeof(text_) - kPrefix - 1, format, args);
    if (wanted < 0) return;
    size_ = std::min(kPrefix + static_cast<size_t>(wanted), sizeof(text_) - 2);
    make_printable(text_ + kPrefix, size_ - kPrefix);  // it may name a path
    text_[size_++] = '\n';
  }
  std::string_view text() const noexcept { return {text_, size_}; }
  // One write, so that lines of several threads do not mix. Nothing can be done about a closed stderr.
  void write_out() const noexcept {
    const KeepErrno keep;
    write_to_stderr(text_, size_);
  }

 private:
  static constexpr size_t kPrefix = 11;
  char text_[1024] = "torchprof: ";
  size_t size_ = 0;
};

char g_shared[PATH_MAX] = "";
bool g_is_quiet = false;
char g_of_host[64] = "";  // the file; empty: each process speaks for itself
uint64_t g_place = 0;

constexpr uint64_t kHashBegin = 0xcbf29ce484222325;
uint64_t hash_of(std::string_view text, uint64_t hash = kHashBegin) noexcept {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Whether the number stands in the file before `end`.
bool has_number(int fd, uint64_t number, off_t end) noexcept {
  uint64_t others[128];
  for (off_t at = 0; at < end; at += sizeof(others)) {
    const ssize_t bytes = pread(fd, others, std::min<size_t>(sizeof(others), static_cast<size_t>(end - at)), at);
    if (bytes <= 0) return false;
    const uint64_t* const last = others + static_cast<size_t>(bytes) / sizeof(number);
    if (std::find<const uint64_t*>(others, last, number) != last) return true;
  }
  return false;
}

// A process whose number is not in the file appends it, and looks once more, up to its own: what is appended has one
// order for all processes. Where the file cannot be had, or is another user's, it speaks.
bool is_first_in(const char* path, uint64_t number) noexcept {
  constexpr off_t kMost = 1 << 16;
  bool is_first = true;
  rlimit limit{};
  // Beyond this limit the kernel would kill the program.
  if (!*path || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < static_cast<rlim_t>(2 * kMost)) return true;
  descriptors::with_file(path, O_RDWR | O_APPEND | O_CREAT, [&](int fd) noexcept {
    struct stat status {};
    if (path == g_of_host && (fstat(fd, &status) != 0 || status.st_uid != geteuid())) return false;
    const off_t before = lseek(fd, 0, SEEK_END);
    if (before < 0 || has_number(fd, number, before)) {
      is_first = before < 0;
    } else if (before < kMost && write(fd, &number, sizeof(number)) == sizeof(number)) {
      const off_t own = lseek(fd, 0, SEEK_CUR) - static_cast<off_t>(sizeof(number));
      is_first = !has_number(fd, number, own);
    }
    return true;
  });
  return is_first;
}

// Of what depends on the place and the settings alone; one number for all of it, whatever the line says.
bool is_first_on_host(Cause cause) noexcept {
  return (cause != Cause::kConfig && cause != Cause::kOutput && cause != Cause::kDiskFull) ||
         is_first_in(g_of_host, g_place);
}

}  // namespace

void say_once(Cause cause, std::string_view line) noexcept {
  if (!is_first(cause)) return;
  const KeepErrno keep;
  write_to_stderr(line.data(), line.size());
}

void warn_once(Cause cause, const char* format, ...) noexcept {
  if (!is_first(cause)) return;
  const KeepErrno keep;
  if (!is_first_on_host(cause)) return;
  Line line;
  va_list args;
  va_start(args, format);
  line.print(format, args);
  va_end(args);
  line.write_out();
}

void share_lines(const char* path, bool is_quiet) noexcept {
  const size_t size = strlen(path);
  if (size < sizeof(g_shared)) memcpy(g_shared, path, size + 1);
  g_is_quiet = is_quiet;
}

void tell_once_a_run(Cause cause, About about, const char* format, ...) noexcept {
  if ((about == About::kNotice && g_is_quiet) || !is_first(cause)) return;
  const KeepErrno keep;
  Line line;
  va_list args;
  va_start(args, format);
  line.print(format, args);
  va_end(args);
  const bool is_of_host = *g_of_host != 0;  // there may be no run so far
  if (is_first_in(is_of_host ? g_of_host : g_shared, hash_of(line.text(), is_of_host ? g_place : kHashBegin)))
    line.write_out();
}

void speak_once_a_host(const char* place) noexcept {
  snprintf(g_of_host, sizeof(g_of_host), "/dev/shm/torchprof.said.%u", static_cast<unsigned>(geteuid()));
  g_place = hash_of(place);
}

const char* keep_lines() noexcept {
  g_keeps.store(true, std::memory_order_relaxed);
  g_said.store(0, std::memory_order_relaxed);
  memset(g_kept, 0, sizeof(g_kept));
  g_kept_size.store(0, std::memory_order_relaxed);
  return g_kept;
}

void borrow_stderr() noexcept { t_borrows_stderr = true; }

}  // namespace torchprof
