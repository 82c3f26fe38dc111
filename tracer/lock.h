// Holds a mutex as long as it lives. Needs nothing of libstdc++'s threads and takes no exception; never on a hot path.
#pragma once

#include <pthread.h>

namespace torchprof {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace torchprof
