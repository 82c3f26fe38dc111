// What a thread of ours sleeps on.
#include "tracer/process/wakeup.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <ctime>
#include <thread>

namespace wakeup_test {

using torchprof::Wakeup;

namespace {

uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

TEST_CASE("a time that comes ends the sleep, and not before") {
  Wakeup wakeup;
  const uint64_t until = now() + 20'000'000;
  wakeup.sleep(until);
  CHECK(now() >= until);
  wakeup.sleep(until);  // long ago
}

TEST_CASE("a wakeup before the sleep is kept, and several are one") {
  Wakeup wakeup;
  wakeup.wake();
  wakeup.wake();
  wakeup.sleep(Wakeup::kNever);
  const uint64_t until = now() + 20'000'000;
  wakeup.sleep(until);
  CHECK(now() >= until);
}

// Would not end if one were lost.
TEST_CASE("two threads wake each other in turn") {
  Wakeup ping, pong;
  constexpr int kRounds = 20'000;
  int rounds = 0;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      ping.sleep(Wakeup::kNever);
      ++rounds;
      pong.wake();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ping.wake();
    pong.sleep(Wakeup::kNever);
  }
  other.join();
  CHECK(rounds == kRounds);
}

TEST_CASE("errno stays as it is") {
  Wakeup wakeup;
  errno = 42;
  wakeup.sleep(now());
  CHECK(errno == 42);
}

}  // namespace wakeup_test
