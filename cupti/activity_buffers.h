// The buffers that CUPTI fills: a pool with a bound, and the queue of those that have come back.
//
// Any thread; called from CUPTI's callbacks, which may hold CUPTI's locks: nothing here calls CUPTI, and the one lock
// is held for a few instructions. A buffer belongs to CUPTI between request() and completed(), to whoever took it
// between take() and give_back(). Memory is mapped when it is first needed, and kept.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace torchprof::cupti {

struct Completed {
  std::byte* data;
  size_t valid;  // bytes that CUPTI filled
  void* context;
  uint32_t stream;
  bool is_foreign = false;  // not of this pool
};

class ActivityBuffers {
 public:
  static constexpr size_t kSize = size_t{2} << 20;
  static constexpr size_t kMost = 128;         // a quarter of a gigabyte
  static constexpr size_t kMostForced = 1024;  // where a refusal is worse

  // nullptr: as many are out as may be. `forced`: up to kMostForced.
  std::byte* request(bool forced) noexcept;
  // False: the buffer is not of this pool. CUPTI gives back to whoever is registered, not to whoever it asked.
  bool completed(const Completed& buffer) noexcept;
  // Such a buffer is queued all the same; whoever takes it gives it to its owner. False: there is no room.
  bool put_foreign(Completed buffer) noexcept;
  bool take(Completed& buffer) noexcept;
  size_t queued() noexcept;  // that may be taken
  void give_back(std::byte* data) noexcept;

  size_t refused() const noexcept { return __atomic_load_n(&refused_, __ATOMIC_RELAXED); }
  size_t most() const noexcept { return __atomic_load_n(&count_, __ATOMIC_RELAXED); }  // that were ever mapped

 private:
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  size_t count_ = 0;
  size_t refused_ = 0;
  size_t free_count_ = 0;
  size_t first_ = 0, queued_ = 0;     // of the ring `queue_`
  std::byte* all_[kMostForced] = {};  // as they were mapped, `count_` of them
  std::byte* free_[kMostForced] = {};
  Completed queue_[kMostForced] = {};
};

}  // namespace torchprof::cupti
