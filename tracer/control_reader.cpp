#include "tracer/control_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/session.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/run_files.h"

namespace torchprof::window::control_reader {
namespace {

constexpr size_t kPart = 4096;   // that is read at once; a longer line is damage
constexpr int kMostParts = 64;   // of a look
constexpr int kMostUnknown = 3;  // lines that are noted
constexpr int64_t kMs = 1'000'000;
// Of a network file system stat() may answer from memory for a minute: to open a file asks the server.
constexpr int kOpenedEach = 5;  // looks

struct State {
  int64_t looked_at = 0;  // ns, CLOCK_MONOTONIC; 0: never
  off_t size = 0;         // of the file at the last look
  off_t taken = 0;        // so far
  int looks = 0;
  int unknown = 0;
  char part[kPart] = {};
};
constinit State g_state{};
constinit std::atomic<uint64_t> g_rank{kNoRank};  // publishes nothing

bool is_ours(const struct stat& status) noexcept {
  return S_ISREG(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0);
}

// How many bytes of the file are in `part`, from `taken` on.
size_t read_part(const char* path) noexcept {
  State& s = g_state;
  size_t size = 0;
  descriptors::with_file(path, O_RDONLY | O_NONBLOCK, [&](int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0 || !is_ours(status)) return false;
    if (status.st_size < s.taken) s.taken = 0;  // it is another file
    s.size = status.st_size;
    const ssize_t n = pread(fd, s.part, kPart, s.taken);
    size = n > 0 ? static_cast<size_t>(n) : 0;
    return true;
  });
  return size;
}

void note_unknown(std::string_view text) noexcept {
  constexpr size_t kShown = 100;
  if (++g_state.unknown <= kMostUnknown) session::define_fact(kControlUnknownFact, text.substr(0, kShown));
}

// The whole lines of a part. False: one of them could not be obeyed now.
bool take_lines(std::string_view text, Obey obey) noexcept {
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const ControlLine line = parse_control_line(text.substr(0, end));
    if (line.kind == ControlLine::Kind::kUnknown) note_unknown(text.substr(0, end));
    const bool is_for_us = line.kind == ControlLine::Kind::kWindow || line.kind == ControlLine::Kind::kDrop;
    if (is_for_us && is_for_rank(line, g_rank.load(std::memory_order_relaxed)) && !obey(line)) return false;
    g_state.taken += static_cast<off_t>(end + 1);
  }
  return true;
}

}  // namespace

bool look(bool at_once, Obey obey) noexcept {
  State& s = g_state;
  const int64_t now = clock::read_ns(CLOCK_MONOTONIC);
  if (!at_once && s.looked_at != 0 && now - s.looked_at < kApartMs * kMs) return true;
  s.looked_at = now;
  char path[PATH_MAX];
  if (snprintf(path, sizeof(path), "%s/%s", session::spool_directory(), kControlName) >= static_cast<int>(sizeof(path)))
    return true;
  struct stat status {};
  if (stat(path, &status) != 0) return true;
  if (!at_once && status.st_size == s.size && ++s.looks % kOpenedEach != 0) return true;
  for (int i = 0; i < kMostParts; ++i) {
    const std::string_view text(s.part, read_part(path));
    const bool has_line = text.find('\n') != text.npos;
    if (has_line && !take_lines(text, obey)) {
      s.looked_at = 0;
      s.size = 0;
      return false;
    }
    if (!has_line && text.size() < kPart) return true;
    if (!has_line) s.taken += static_cast<off_t>(kPart);  // no line is so long
  }
  return true;
}

void know_rank(uint64_t rank) noexcept { g_rank.store(rank, std::memory_order_relaxed); }

void answer(const ControlLine& line, AskedWindows::Taken taken, uint64_t step) noexcept {
  using Taken = AskedWindows::Taken;
  const std::string_view word = taken == Taken::kTaken  ? kControlTaken
                                : taken == Taken::kLate ? kControlLate
                                                        : kControlFull;
  char key[64], text[64];
  snprintf(key, sizeof(key), "%.*s%llu", static_cast<int>(kControlFact.size()), kControlFact.data(),
           static_cast<unsigned long long>(line.id));
  snprintf(text, sizeof(text), "%.*s at %llu", static_cast<int>(word.size()), word.data(),
           static_cast<unsigned long long>(step));
  session::define_fact(key, text);
}

void begin_anew() noexcept {
  State& s = g_state;
  s.looked_at = 0;
  s.size = s.taken = 0;
  s.unknown = 0;
}

}  // namespace torchprof::window::control_reader
