// A lock that must not stay locked in a forked child, which does not have the thread that holds it.
#pragma once

#include <pthread.h>

namespace torchprof::inject {

// From now on the lock is free in a forked child. Any thread, any number of times.
template <pthread_mutex_t& lock>
void survive_fork() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] {
    pthread_atfork([] { pthread_mutex_lock(&lock); }, [] { pthread_mutex_unlock(&lock); },
                   [] { lock = PTHREAD_MUTEX_INITIALIZER; });
  });
}

}  // namespace torchprof::inject
