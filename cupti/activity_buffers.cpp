#include "cupti/activity_buffers.h"

#include <sys/mman.h>

#include <algorithm>

#include "tracer/lock.h"

namespace torchprof::cupti {
std::byte* ActivityBuffers::request(bool forced) noexcept {
  const Lock lock(lock_);
  if (free_count_ > 0) return free_[--free_count_];
  if (count_ < (forced ? kMostForced : kMost)) {
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      return all_[count_++] = static_cast<std::byte*>(memory);
    }
  }
  ++refused_;
  return nullptr;
}

bool ActivityBuffers::completed(const Completed& buffer) noexcept {
  const Lock lock(lock_);
  if (std::find(all_, all_ + count_, buffer.data) == all_ + count_) return false;
  if (buffer.valid == 0 && free_count_ < kMostForced)
    free_[free_count_++] = buffer.data;
  else if (buffer.valid != 0 && queued_ < kMostForced)
    queue_[(first_ + queued_++) % kMostForced] = buffer;
  return true;
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

void ActivityBuffers::give_back(std::byte* data) noexcept {
  const Lock lock(lock_);
  if (free_count_ < kMostForced) free_[free_count_++] = data;
}

}  // namespace torchprof::cupti
