#include "formats/io/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <csignal>

namespace torchprof::formats {
namespace {

size_t g_thread_count = 0;  // 0: not set
thread_local bool t_is_parallel = false;

size_t processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();  // more processors than a cpu_set_t has
}

}  // namespace

size_t thread_count() {
  return g_thread_count != 0 ? g_thread_count : std::clamp(processors(), size_t{1}, kMostWorkers);
}

void set_thread_count(size_t count) { g_thread_count = count; }

bool is_parallel() { return t_is_parallel; }

namespace detail {

BlockSignals::BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockSignals::~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

size_t Team::start(size_t count, const std::function<void()>& work) {
  const BlockSignals blocked;
  threads_.reserve(count);
  try {
    while (threads_.size() < count)
      threads_.emplace_back([work] {
        t_is_parallel = true;
        work();
      });
  } catch (const std::exception&) {  // no thread or no memory: those that have started do it
  }
  return threads_.size();
}

}  // namespace detail
}  // namespace torchprof::formats
