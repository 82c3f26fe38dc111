// The buffers that CUPTI fills: a pool of limited size, and the queue of those that have come back.
//
// Any thread; called from CUPTI's callbacks, which may hold CUPTI's locks: nothing here calls CUPTI, and the only lock
// is held for a few instructions. A buffer belongs to CUPTI between request() and completed(), and to whoever took it
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

// How far the records of a buffer have been read before CUPTI gave it back (in_flight.h). Lies behind the buffer.
struct Progress;
struct BufferInUse {
  std::byte* data;
  Progress* progress;
};

class ActivityBuffers {
 public:
  static constexpr size_t kSize = size_t{2} << 20;
  static constexpr size_t kMost = 128;         // a quarter of a gigabyte
  static constexpr size_t kMostForced = 1024;  // where a refusal would be worse

  // nullptr: kMost buffers are in use, or kMostForced if `forced`.
  std::byte* request(bool forced) noexcept;
  // False: the buffer is not of this pool. CUPTI returns buffers to whoever is registered now, not to whom it asked.
  bool completed(const Completed& buffer) noexcept;
  // Queues such a buffer all the same; whoever takes it gives it to its owner. False: there is no room.
  bool put_foreign(Completed buffer) noexcept;
  bool take(Completed& buffer) noexcept;
  size_t queued() noexcept;  // that may be taken
  // Its first `valid` bytes and its progress become 0 again.
  void give_back(std::byte* data, size_t valid) noexcept;
  // The buffers that CUPTI has now. Their memory stays what it is until give_back(), so whoever takes buffers may read
  // them. Returns how many were put into `out`.
  size_t in_use(BufferInUse* out, size_t room) noexcept;
  // After cuptiFinalize: CUPTI has no buffer any more, and writes into none.
  void abandon() noexcept;
  static Progress& progress_of(std::byte* data) noexcept { return *reinterpret_cast<Progress*>(data + kSize); }

  size_t refused() const noexcept { return __atomic_load_n(&refused_, __ATOMIC_RELAXED); }
  size_t most() const noexcept { return __atomic_load_n(&count_, __ATOMIC_RELAXED); }  // buffers that exist

 private:
  size_t index_of(const std::byte* data) const noexcept;  // in all_; count_: it is not there

  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  size_t count_ = 0;
  size_t refused_ = 0;
  size_t free_count_ = 0;
  size_t first_ = 0, queued_ = 0;     // of the ring `queue_`
  std::byte* all_[kMostForced] = {};  // as they were mapped, `count_` of them
  bool is_in_use_[kMostForced] = {};  // CUPTI has all_[i]
  std::byte* free_[kMostForced] = {};
  Completed queue_[kMostForced] = {};
};

struct Progress {
  uint32_t done;                                      // all records before this are written
  uint32_t seen;                                      // the last look found records up to here
  uint64_t written[ActivityBuffers::kSize / 8 / 64];  // a bit for each record, by where it begins

  bool is_written(size_t at) const noexcept { return (written[at / 512] >> at / 8 % 64 & 1) != 0; }
  void set_written(size_t at) noexcept { written[at / 512] |= uint64_t{1} << at / 8 % 64; }
};

}  // namespace torchprof::cupti
