#include "cupti/activity_buffers.h"

#include <sys/mman.h>

namespace torchprof::cupti {
namespace {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace

std::byte* ActivityBuffers::request(bool forced) noexcept {
  const Lock lock(lock_);
  if (free_count_ > 0) return free_[--free_count_];
  if (count_ < (forced ? kMostForced : kMost)) {
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      ++count_;
      return static_cast<std::byte*>(memory);
    }
  }
  ++refused_;
  return nullptr;
}

void ActivityBuffers::completed(const Completed& buffer) noexcept {
  const Lock lock(lock_);
  if (queued_ < kMostForced) queue_[(first_ + queued_++) % kMostForced] = buffer;
}

bool ActivityBuffers::take(Completed& buffer) noexcept {
  const Lock lock(lock_);
  if (queued_ == 0) return false;
  buffer = queue_[first_];
  first_ = (first_ + 1) % kMostForced;
  --queued_;
  return true;
}

void ActivityBuffers::give_back(std::byte* data) noexcept {
  const Lock lock(lock_);
  if (free_count_ < kMostForced) free_[free_count_++] = data;
}

}  // namespace torchprof::cupti
