// Holds a mutex as long as it lives. Uses nothing of libstdc++'s threads and throws nothing; not for hot paths.
//
// In a sealed process (seal.h) it spins instead of waiting in the kernel; no lock is held for long.
#pragma once

#include <pthread.h>

#include <optional>

#include "tracer/process/seal.h"
#include "tracer/processor/processor.h"

namespace torchprof {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) {
    if (pthread_mutex_trylock(&mutex_) == 0) return;
    // Unlocking can be a system call as well (it wakes the next thread), so the Calls lasts as long as the lock is
    // held.
    if (calls_.emplace())
      pthread_mutex_lock(&mutex_);
    else
      while (pthread_mutex_trylock(&mutex_) != 0) processor::relax();
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
  std::optional<seal::Calls> calls_;
};

}  // namespace torchprof
