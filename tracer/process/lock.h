// Holds a mutex as long as it lives. Needs nothing of libstdc++'s threads and takes no exception; never on a hot path.
//
// In a sealed process (seal.h) nobody waits in the kernel: what a lock is held for is short.
#pragma once

#include <pthread.h>

#include <optional>

#include "tracer/process/seal.h"

namespace torchprof {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) {
    if (pthread_mutex_trylock(&mutex_) == 0) return;
    // To wake somebody up is a system call as well: who waited is in a Calls until it has let go.
    if (calls_.emplace())
      pthread_mutex_lock(&mutex_);
    else
      while (pthread_mutex_trylock(&mutex_) != 0) pause();
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  pthread_mutex_t& mutex_;
  std::optional<seal::Calls> calls_;
};

}  // namespace torchprof
