#include "cupti/activity_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tracer/process/lock.h"

namespace torchprof::cupti {
std::byte* ActivityBuffers::request(bool forced) noexcept {
  const Lock lock(lock_);
  if (free_count_ > 0) {
    std::byte* data = free_[--free_count_];
    is_in_use_[index_of(data)] = true;
    return data;
  }
  if (count_ < (forced ? kMostForced : kMost)) {
    void* memory = mmap(nullptr, kSize + sizeof(Progress), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      is_in_use_[count_] = true;
      return all_[count_++] = static_cast<std::byte*>(memory);
    }
  }
  ++refused_;
  return nullptr;
}

size_t ActivityBuffers::index_of(const std::byte* data) const noexcept {
  return static_cast<size_t>(std::find(all_, all_ + count_, data) - all_);
}

size_t ActivityBuffers::in_use(BufferInUse* out, size_t room) noexcept {
  const Lock lock(lock_);
  size_t n = 0;
  for (size_t i = 0; i < count_ && n < room; ++i)
    if (is_in_use_[i]) out[n++] = {all_[i], &progress_of(all_[i])};
  return n;
}

bool ActivityBuffers::completed(const Completed& buffer) noexcept {
  const Lock lock(lock_);
  const size_t index = index_of(buffer.data);
  if (index == count_) return false;
  if (!is_in_use_[index]) return true;  // one that was abandoned
  is_in_use_[index] = false;
  // Clean where CUPTI wrote nothing. Otherwise whoever takes it cleans it.
  const bool is_clean = buffer.valid == 0 && *buffer.data == std::byte{0};
  if (is_clean && free_count_ < kMostForced)
    free_[free_count_++] = buffer.data;
  else if (!is_clean && queued_ < kMostForced)
    queue_[(first_ + queued_++) % kMostForced] = buffer;
  return true;
}

void ActivityBuffers::abandon() noexcept {
  for (size_t i = 0; i < kMostForced; ++i) {
    {
      const Lock lock(lock_);
      if (i == count_) return;
      if (!is_in_use_[i]) continue;
      is_in_use_[i] = false;
    }
    give_back(all_[i], 0);
  }
}

bool ActivityBuffers::put_foreign(Completed buffer) noexcept {
  const Lock lock(lock_);
  if (queued_ == kMostForced) return false;
  buffer.is_foreign = true;
  queue_[(first_ + queued_++) % kMostForced] = buffer;
  return true;
}

bool ActivityBuffers::take(Completed& buffer) noexcept {
  const Lock lock(lock_);
  if (queued_ == 0) return false;
  buffer = queue_[first_];
  first_ = (first_ + 1) % kMostForced;
  --queued_;
  return true;
}

size_t ActivityBuffers::queued() noexcept {
  const Lock lock(lock_);
  return queued_;
}

void ActivityBuffers::give_back(std::byte* data, size_t valid) noexcept {
  Progress& progress = progress_of(data);
  if (progress.seen != 0) progress = {};
  std::memset(data, 0, valid == 0 ? kSize : valid);
  const Lock lock(lock_);
  if (free_count_ < kMostForced) free_[free_count_++] = data;
}

}  // namespace torchprof::cupti
