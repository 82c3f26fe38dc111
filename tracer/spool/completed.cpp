#include "tracer/spool/completed.h"

#include <sys/mman.h>

#include <cstring>

#include "tracer/process/lock.h"
#include "tracer/spool/layout.h"

namespace torchprof {
namespace {

void* map_room(uint64_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

bool Completed::prepare(uint64_t capacity) noexcept {
  offsets_ = static_cast<uint64_t*>(map_room(capacity * sizeof(uint64_t)));
  capacity_ = offsets_ ? capacity : 0;
  return offsets_ != nullptr;
}

void Completed::push(uint64_t offset) noexcept {
  const Lock lock(lock_);
  if (count_ < capacity_) offsets_[(first_ + count_++) % capacity_] = offset;
}

uint32_t Completed::pop(uint64_t& offset, uint32_t most) noexcept {
  const Lock lock(lock_);
  uint32_t popped = 0;
  for (; popped < most && count_ > 0; ++popped) {
    const uint64_t first = offsets_[first_];
    if (popped == 0)
      offset = first;
    else if (first != offset + uint64_t{popped} * kChunkSize)
      break;
    first_ = (first_ + 1) % capacity_;
    --count_;
  }
  return popped;
}

bool WindowChunks::prepare(uint64_t capacity) noexcept {
  if (kept_) return true;
  void* memory = map_room(capacity * (sizeof(Chunk) + sizeof(uint64_t)));
  if (!memory) return false;
  kept_ = static_cast<Chunk*>(memory);
  free_ = reinterpret_cast<uint64_t*>(kept_ + capacity);
  capacity_ = capacity;
  return true;
}

void WindowChunks::push_locked(uint64_t offset) noexcept {
  if (free_count_ < capacity_) free_[free_count_++] = offset;
}

void WindowChunks::push(uint64_t offset, uint16_t window) noexcept {
  const Lock lock(lock_);
  if (window != 0 && is_given_up(window))
    push_locked(offset);
  else if (kept_count_ < capacity_)
    kept_[kept_count_++] = {offset, window};
}

void WindowChunks::push_free(uint64_t offset) noexcept {
  const Lock lock(lock_);
  push_locked(offset);
}

void WindowChunks::give_up(uint16_t window) noexcept {
  const Lock lock(lock_);
  if (window == 0) return;
  given_up_[window / 64] |= uint64_t{1} << window % 64;
  uint64_t left = 0;
  for (uint64_t i = 0; i < kept_count_; ++i) {
    if (kept_[i].window == window)
      push_locked(kept_[i].offset);
    else
      kept_[left++] = kept_[i];
  }
  kept_count_ = left;
}

uint32_t WindowChunks::pop(uint64_t& offset, uint32_t most) noexcept {
  const Lock lock(lock_);
  uint32_t popped = 0;
  // The chunks of a window come back in the order in which they were completed, so the last one is the highest: the
  // run is found downwards, and begins at its lowest offset.
  for (; popped < most && free_count_ > 0; ++popped) {
    const uint64_t top = free_[free_count_ - 1];
    if (popped > 0 && top + kChunkSize != offset) break;
    offset = top;
    --free_count_;
  }
  return popped;
}

// The bits of the parent's windows stay: a child that is made in the midst of one does not go on with it.
void WindowChunks::abandon() noexcept {
  lock_ = PTHREAD_MUTEX_INITIALIZER;
  kept_count_ = 0;
  free_count_ = 0;
}

}  // namespace torchprof
