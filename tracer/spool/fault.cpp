#include "tracer/spool/fault.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/spool/file.h"
#include "tracer/spool/layout.h"

namespace torchprof::spool_fault {
namespace {

// linux/magic.h; XFS's from its own headers.
constexpr int64_t kInPlace[] = {0xEF53 /* ext2 to ext4 */, 0x58465342 /* XFS */, 0x01021994 /* tmpfs */,
                                0x858458F6 /* ramfs */, 0x794C7630 /* overlayfs: what lies below is not known */};

// The actions that ours has replaced, oldest first.
struct Earlier {
  static constexpr uint32_t kMost = 4;
  struct sigaction actions[kMost];
  std::atomic<uint32_t> count;
  std::atomic_flag is_busy;
};
constinit Earlier g_earlier{};
std::atomic<const char*> g_name{nullptr};
std::atomic<void (*)()> g_stop{nullptr};

struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uint64_t offset = 0;  // in the file
};

// Reads the lines of /proc/self/maps, a character at a time:
//   7f00-7f40 rw-s 00001000 00:1f 258    /run/spool/NAME
class Maps {
 public:
  Maps(uintptr_t at, const char* name) noexcept : at_(at), name_(name) {}
  // True at the end of the line that was looked for.
  bool take(char c) noexcept {
    if (c == '\n') {
      const bool found = is_ours_ && line_.begin <= at_ && at_ < line_.end;
      if (!found) *this = Maps(at_, name_);
      return found;
    }
    if (field_ < 4 && (c == ' ' || (field_ == 0 && c == '-')))
      ++field_;
    else if (field_ == 0)
      add(line_.begin, c);
    else if (field_ == 1)
      add(line_.end, c);
    else if (field_ == 3)
      add(line_.offset, c);
    else if (field_ == 4)
      compare(c);
    return false;
  }
  const Mapping& line() const noexcept { return line_; }

 private:
  template <class Number>
  static void add(Number& number, char c) noexcept {
    number = number * 16 + static_cast<Number>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  void compare(char c) noexcept {
    if (c == '/') {
      matched_ = 0;
      is_ours_ = false;
    } else if (matched_ >= 0) {
      matched_ = name_[matched_] == c ? matched_ + 1 : -1;
      is_ours_ = is_ours_ || (matched_ > 0 && name_[matched_] == 0);
    }
  }

  uintptr_t at_;
  const char* name_;
  Mapping line_;
  int field_ = 0;
  int matched_ = -1;  // characters of the name; -1: this part of the path is another
  bool is_ours_ = false;
};

bool find(uintptr_t at, Mapping& out) noexcept {
  const char* name = g_name.load(std::memory_order_acquire);  // pairs with guard()'s store: the text is written
  if (!name) return false;
  return descriptors::with_file("/proc/self/maps", O_RDONLY, [&](int fd) {
    Maps maps(at, name);
    char part[512];
    bool is_found = false;
    for (ssize_t n; !is_found && (n = read(fd, part, sizeof(part))) > 0;)
      is_found = std::any_of(part, part + n, [&maps](char c) { return maps.take(c); });
    if (is_found) out = maps.line();
    return is_found;
  });
}

struct Part {
  std::byte* at;
  size_t size;
};

// The part that is replaced as a whole: the file's header, a chunk, a piece of a chunk that is split, or the header of
// such a chunk.
Part part_around(int memory, uint64_t offset, uintptr_t at) noexcept {
  const uint64_t page = page_size(), first = first_chunk(page);
  if (offset < first) return {reinterpret_cast<std::byte*>(at - offset), first};
  const uint64_t within = (offset - first) % kChunkSize;
  // Read through the kernel: it may not be mapped any more; then it is no chunk that is split.
  alignas(ChunkHeader) std::byte bytes[sizeof(ChunkHeader)] = {};
  const ssize_t n = pread(memory, bytes, sizeof(bytes), static_cast<off_t>(at - within));
  const auto* chunk = reinterpret_cast<const ChunkHeader*>(bytes);
  const bool is_split = n == sizeof(bytes) && chunk->magic.load(std::memory_order_relaxed) == kChunkMagic &&
                        chunk->kind == ChunkKind::kPieces && chunk->offset == offset - within;
  const uint64_t least = std::max<uint64_t>(kPieceSize, page);
  if (is_split) return {reinterpret_cast<std::byte*>(at - within % least), least};
  return {reinterpret_cast<std::byte*>(at - within), kChunkSize};
}

// Replaces the part of the file around `at` by a copy. Other threads may write to a header at the same time: one of the
// file header's counts may be lost.
bool replace(int memory, const Mapping& mapping, uintptr_t at) noexcept {
  const Part part = part_around(memory, mapping.offset + (at - mapping.begin), at);
  const auto begin = reinterpret_cast<uintptr_t>(part.at);
  if (begin < mapping.begin || begin + part.size > mapping.end) return false;
  void* fresh = mmap(nullptr, part.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  // Read through the kernel: a page that cannot even be read is left empty.
  for (size_t done = 0; done < part.size; done += 4096)
    [[maybe_unused]] const ssize_t n =
        pread(memory, static_cast<std::byte*>(fresh) + done, 4096, static_cast<off_t>(begin + done));
  return mremap(fresh, part.size, part.size, MREMAP_MAYMOVE | MREMAP_FIXED, part.at) != MAP_FAILED;
}

void hand_on(int number, const siginfo_t* info) noexcept {
  struct sigaction before {};                                              // SIG_DFL
  const uint32_t count = g_earlier.count.load(std::memory_order_acquire);  // pairs with guard()'s store: action is set
  if (count > 0) {
    before = g_earlier.actions[count - 1];
    g_earlier.count.store(count - 1, std::memory_order_release);  // pairs with guard()'s load: the action has been read
  }
  sigaction(number, &before, nullptr);
  // A fault comes again as soon as we return; a signal that somebody sent does not.
  if (info->si_code <= 0) raise(number);
}

void on_fault(int number, siginfo_t* info, void*) noexcept {
  const KeepErrno keep;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  Mapping mapping;
  const auto replace_it = [&](int memory) { return replace(memory, mapping, at); };
  if (info->si_code <= 0 || !find(at, mapping) || !descriptors::with_file("/proc/self/mem", O_RDONLY, replace_it))
    return hand_on(number, info);
  // Pairs with at_loss()'s store: what `stop` uses has been made.
  if (void (*stop)() = g_stop.load(std::memory_order_acquire)) stop();
}

}  // namespace

bool is_possible(int fd) noexcept {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && std::ranges::find(kInPlace, int64_t{system.f_type}) == std::end(kInPlace);
}

// Pairs with on_fault()'s load.
void at_loss(void (*stop)()) noexcept { g_stop.store(stop, std::memory_order_release); }

void guard(const char* name) noexcept {
  g_name.store(name, std::memory_order_release);  // pairs with find()'s load
  // Pairs with the clear() below in the thread that was here before. True: another thread is at it.
  if (g_earlier.is_busy.test_and_set(std::memory_order_acquire)) return;
  struct sigaction ours {
  }, before{};
  ours.sa_sigaction = on_fault;
  // While the handler replaces a chunk it may fault again, on the file's header.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  // Pairs with hand_on()'s store: it has read the action that is written next.
  const uint32_t count = g_earlier.count.load(std::memory_order_acquire);
  if (count < Earlier::kMost && sigaction(SIGBUS, nullptr, &before) == 0 && before.sa_sigaction != on_fault) {
    g_earlier.actions[count] = before;
    g_earlier.count.store(count + 1, std::memory_order_release);  // pairs with hand_on()'s load
    sigaction(SIGBUS, &ours, nullptr);
  }
  g_earlier.is_busy.clear(std::memory_order_release);  // pairs with the test_and_set() above in the next thread
}

}  // namespace torchprof::spool_fault
