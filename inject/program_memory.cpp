#include "inject/program_memory.h"

#include <pthread.h>
#include <sys/mman.h>

#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/seal.h"
#include "tracer/window.h"

namespace torchprof::inject {
namespace {

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

// The lock must not stay locked in a forked child, which does not have the thread that holds it.
void survive_fork() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] {
    pthread_atfork([] { pthread_mutex_lock(&g_lock); }, [] { pthread_mutex_unlock(&g_lock); },
                   [] { g_lock = PTHREAD_MUTEX_INITIALIZER; });
  });
}

// address -> bytes, open addressing, under the lock.
class Blocks {
 public:
  int64_t* find(const void* address) noexcept {
    for (size_t i = 0; capacity_ != 0; ++i) {
      Block& block = blocks_[slot(address, i)];
      if (block.address == address) return block.bytes != 0 ? &block.bytes : nullptr;
      if (!block.address) return nullptr;
    }
    return nullptr;
  }
  // False: there is no memory for it.
  bool put(const void* address, int64_t bytes) noexcept {
    if (int64_t* known = find(address)) {
      *known = bytes;
      return true;
    }
    if ((used_ + 1) * 2 > capacity_ && !grow()) return false;
    size_t i = 0;
    while (blocks_[slot(address, i)].address && blocks_[slot(address, i)].address != address) ++i;
    Block& block = blocks_[slot(address, i)];
    used_ += block.address == nullptr;
    block = {address, bytes};
    return true;
  }

  void clear() noexcept {
    if (blocks_) munmap(static_cast<void*>(blocks_), capacity_ * sizeof(Block));
    *this = {};
  }

 private:
  struct Block {
    const void* address;
    int64_t bytes;  // 0: gone, the place is kept until the table is made anew
  };
  size_t slot(const void* address, size_t i) const noexcept {
    return ((reinterpret_cast<uintptr_t>(address) >> 4) * 0x9e3779b97f4a7c15u + i) & (capacity_ - 1);
  }
  bool grow() noexcept {
    size_t alive = 0;
    for (size_t i = 0; i < capacity_; ++i) alive += blocks_[i].bytes != 0;
    size_t capacity = 1024;
    while (capacity < alive * 4) capacity *= 2;
    const KeepErrno keep;
    void* memory = seal::map(capacity * sizeof(Block));
    if (!memory) return false;
    Blocks fresh;
    fresh.blocks_ = static_cast<Block*>(memory);
    fresh.capacity_ = capacity;
    for (size_t i = 0; i < capacity_; ++i)
      if (blocks_[i].bytes != 0) fresh.put(blocks_[i].address, blocks_[i].bytes);
    if (blocks_) seal::unmap(blocks_, capacity_ * sizeof(Block));
    *this = fresh;
    return true;
  }

  Block* blocks_ = nullptr;
  size_t capacity_ = 0;  // a power of two
  size_t used_ = 0;
};

Blocks g_reported;  // what torch has reported in the window g_reported_in
uint32_t g_reported_in = 0;
Blocks g_noted;   // torch's size_table_, as it would be without us
Blocks g_mapped;  // blocks of at::MapAllocator, which reports whether a profiler is on or not
uint64_t g_total = 0;

}  // namespace

bool program_would_see(const void* address, int64_t& bytes, uint64_t& allocated, uint64_t reserved,
                       bool wanted) noexcept {
  // at::MapAllocator reports the bytes that it maps as reserved, and totals of 0 when it frees.
  const bool may_be_mapped = reserved != 0 || (bytes < 0 && allocated == 0);
  if (!wanted && !may_be_mapped) return false;
  survive_fork();
  const Lock lock(g_lock);
  if (reserved != 0) {
    g_mapped.put(address, bytes);
    return true;
  }
  if (int64_t* mapped = may_be_mapped ? g_mapped.find(address) : nullptr) {
    *mapped = 0;
    return true;
  }
  if (!wanted) return false;
  if (bytes > 0) {
    if (!g_noted.put(address, bytes)) return false;
    g_total += static_cast<uint64_t>(bytes);
  } else {
    int64_t* noted = g_noted.find(address);
    if (!noted) return false;
    bytes = -*noted;
    g_total -= static_cast<uint64_t>(*noted);
    *noted = 0;
  }
  allocated = g_total;
  return true;
}

void note_reported(const void* address, int64_t bytes) noexcept {
  survive_fork();
  const Lock lock(g_lock);
  if (g_reported_in != window::number()) g_reported.clear();
  g_reported_in = window::number();
  if (bytes > 0) {
    g_reported.put(address, bytes);
  } else if (int64_t* known = g_reported.find(address)) {
    *known = 0;
  }
}

bool was_reported(const void* address) noexcept {
  const Lock lock(g_lock);
  return g_reported_in == window::number() && g_reported.find(address) != nullptr;
}

uint64_t program_total() noexcept {
  survive_fork();
  const Lock lock(g_lock);
  return g_total;
}

}  // namespace torchprof::inject
