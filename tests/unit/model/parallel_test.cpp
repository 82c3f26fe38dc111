// Several threads, and one order of what they give.
#include "formats/io/parallel.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace parallel_test {

using namespace torchprof::formats;

namespace {

struct Failure : std::runtime_error {
  explicit Failure(size_t i) : std::runtime_error(std::to_string(i)) {}
};

// What a piece does, so that pieces end in another order than they begin.
void spin(size_t rounds) {
  volatile size_t sum = 0;
  for (size_t n = 0; n < rounds; ++n) sum = sum + n;
}

}  // namespace

TEST_CASE("results are taken in order, up to the first that fails, with any number of threads") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const size_t count = random() % 60, threads = 1 + random() % 9;
    const size_t fails_in_make = random() % 3 == 0 ? random() % 60 : count;
    const size_t fails_in_take = random() % 3 == 0 ? random() % 60 : count;
    set_thread_count(threads);
    std::vector<size_t> work(count);
    for (size_t& one : work) one = random() % 2000;
    std::atomic<size_t> made{0}, taken{0}, furthest{0};
    const auto make = [&](size_t i) {
      ++made;
      const size_t ahead = i - std::min(i, taken.load());
      for (size_t known = furthest; ahead > known && !furthest.compare_exchange_weak(known, ahead);) {
      }
      spin(work[i]);
      if (i == fails_in_make) throw Failure(i);
      return std::to_string(i);
    };
    const auto take = [&](size_t i, const std::string& result) {
      if (i == fails_in_take) throw Failure(i);
      CHECK(result == std::to_string(i));
      CHECK(taken == i);
      taken = i + 1;
    };
    std::string error;
    try {
      in_order(count, make, take);
    } catch (const Failure& failure) {
      error = failure.what();
    }
    const size_t fails = std::min({fails_in_make, fails_in_take, count});
    CAPTURE(seed);
    CHECK(taken == fails);
    CHECK(error == (fails < count ? std::to_string(fails) : ""));
    CHECK(furthest <= 2 * threads);
    if (fails == count) CHECK(made == count);
  }
  set_thread_count(0);
}

TEST_CASE("what runs on the threads sees no signal, and starts no threads of its own") {
  set_thread_count(4);
  CHECK_FALSE(is_parallel());
  const auto make = [](size_t) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    const pthread_t self = pthread_self();
    bool is_same_thread = true;
    in_order(
        5, [self](size_t) { return pthread_equal(self, pthread_self()) != 0; },
        [&](size_t, bool is_same) { is_same_thread = is_same_thread && is_same; });
    return is_parallel() && is_same_thread && sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1;
  };
  size_t taken = 0;
  in_order(20, make, [&](size_t, bool is_right) {
    CHECK(is_right);
    ++taken;
  });
  CHECK(taken == 20);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  CHECK(sigismember(&mask, SIGTERM) == 0);
  set_thread_count(0);
  CHECK(thread_count() >= 1);
  CHECK(thread_count() <= kMostWorkers);
}

}  // namespace parallel_test
