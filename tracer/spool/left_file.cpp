#include "tracer/spool/left_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/spool/layout.h"

namespace torchprof::left_file {
namespace {

struct Range {
  uintptr_t begin;
  uintptr_t end;
};
constexpr size_t kMostRanges = 256;  // more are found when these are gone

// The mappings whose line of /proc/self/maps has the name: 7f00-7f40 rw-s 00001000 00:1f 258    /run/spool/NAME
size_t find_ranges(const char* name, Range (&ranges)[kMostRanges]) noexcept {
  size_t count = 0;
  const auto read_lines = [&](int fd) noexcept {
    char text[8192];
    size_t length = 0;
    for (ssize_t n = 0; count < kMostRanges && (n = read(fd, text + length, sizeof(text) - 1 - length)) > 0;) {
      length += static_cast<size_t>(n);
      text[length] = 0;
      char* line = text;
      for (char* end = nullptr; count < kMostRanges && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        Range& range = ranges[count];
        if (strstr(line, name) && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &range.begin, &range.end) == 2) ++count;
      }
      length -= static_cast<size_t>(line - text);
      if (length == sizeof(text) - 1) return false;
      memmove(text, line, length);
    }
    return true;
  };
  return descriptors::with_file("/proc/self/maps", O_RDONLY, read_lines) ? count : 0;
}

bool replace(const Range& range) noexcept {
  const size_t size = range.end - range.begin;
  const auto* from = reinterpret_cast<const std::byte*>(range.begin);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* to = static_cast<std::byte*>(memory);
  for (size_t at = 0; at + kPieceSize <= size; at += kPieceSize) {
    if (reinterpret_cast<const ChunkHeader*>(from + at)->magic.load(std::memory_order_relaxed) == kChunkMagic)
      memcpy(to + at, from + at, sizeof(ChunkHeader));
  }
  if (uint64_t magic = 0; memcpy(&magic, from, sizeof(magic)), magic == kSpoolMagic)
    memcpy(to, from, sizeof(FileHeader));
  if (mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(range.begin)) != MAP_FAILED)
    return true;
  munmap(memory, size);
  return false;
}

}  // namespace

void leave(const char* name) noexcept {
  static Range ranges[kMostRanges];
  for (;;) {
    const size_t count = find_ranges(name, ranges);
    bool is_all = count > 0;
    for (size_t i = 0; i < count; ++i) is_all = replace(ranges[i]) && is_all;
    if (!is_all) return;
  }
}

}  // namespace torchprof::left_file
