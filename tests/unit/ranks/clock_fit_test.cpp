// How far a clock is ahead, from collectives of planted clocks.
#include "formats/ranks/clock_fit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace clock_fit_test {

using namespace torchprof::formats;

namespace {

constexpr int64_t kUs = 1000, kSecond = 1'000'000'000, kStart = 1'750'000'000 * kSecond;

struct Planted {
  int64_t ahead = 5'000'000;
  double drift = 20e-6;
  int64_t there(int64_t here) const { return here + ahead + std::llround(drift * static_cast<double>(here - kStart)); }
};

struct Delays {
  int64_t most_here = 200 * kUs, most_there = 200 * kUs;  // of leaving: at least, and by chance up to so much more
  int64_t least_here = 30 * kUs, least_there = 30 * kUs;
};

// All enter in the course of a millisecond, and leave a while after the last one.
std::vector<Meeting> meetings(std::mt19937& random, size_t count, int64_t apart, const Planted& planted,
                              const Delays& delays) {
  const auto up_to = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
  };
  std::vector<Meeting> all;
  for (size_t i = 0; i < count; ++i) {
    const int64_t now = kStart + static_cast<int64_t>(i) * apart;
    const int64_t here = now + up_to(1000 * kUs), there = now + up_to(1000 * kUs), last = std::max(here, there);
    int64_t ends[4];
    for (int k = 0; k < 4; ++k)
      ends[k] =
          last + (k < 2 ? delays.least_here + up_to(delays.most_here) : delays.least_there + up_to(delays.most_there));
    const auto part = [](int64_t begin, int64_t a, int64_t b) {
      return MachinePart{begin, std::min(a, b), (a + b) / 2, std::max(a, b)};
    };
    all.push_back(
        {part(here, ends[0], ends[1]), part(planted.there(there), planted.there(ends[2]), planted.there(ends[3]))});
  }
  return all;
}

// The largest error at the times of the meetings.
int64_t worst(const ClockFit& fit, const Planted& planted, const std::vector<Meeting>& meetings) {
  const ClockCorrection correction{fit.points};
  int64_t most = 0;
  for (const Meeting& m : meetings) {
    const int64_t there = planted.there(m.here.end);
    most = std::max(most, std::abs(correction.ahead_at(there) - (there - m.here.end)));
  }
  return most;
}

}  // namespace

TEST_CASE("60 collectives tell a clock to 60 us, and the error that is told is not smaller than the true one") {
  std::mt19937 random(21);
  for (int round = 0; round < 100; ++round) {
    const Planted planted{static_cast<int64_t>(random() % 20'000'000) - 10'000'000,
                          1e-6 * (static_cast<double>(random() % 100) - 50)};
    const auto all = meetings(random, 60, 100'000 * kUs, planted, {});
    const auto fit = fit_clock(all, {});
    REQUIRE(fit);
    CHECK(worst(*fit, planted, all) <= 60 * kUs);
    CHECK(worst(*fit, planted, all) <= fit->error_ns);
  }
}

TEST_CASE("where messages take longer one way than the other, the error covers what that makes") {
  std::mt19937 random(22);
  for (int round = 0; round < 100; ++round) {
    const Delays delays{.most_here = 50 * kUs,
                        .most_there = static_cast<int64_t>(random() % 2000) * kUs,
                        .least_there = static_cast<int64_t>(random() % 2000) * kUs};
    const auto all = meetings(random, 3 + random() % 100, 50'000 * kUs, {}, delays);
    const auto fit = fit_clock(all, {});
    REQUIRE(fit);
    CHECK(worst(*fit, {}, all) <= fit->error_ns);
  }
}

TEST_CASE("a clock that wanders in hours is followed") {
  std::mt19937 random(23);
  const Planted planted;
  auto all = meetings(random, 3600, 2 * kSecond, planted, {});
  const auto wander = [](int64_t time) {  // 20 ms to and fro
    return std::llround(2e7 * std::sin(static_cast<double>(time - kStart) / 3.6e12));
  };
  for (Meeting& m : all)
    for (int64_t* time : {&m.there.last_begin, &m.there.first_end, &m.there.end, &m.there.last_end})
      *time += wander(m.here.end);
  const auto fit = fit_clock(all, {});
  REQUIRE(fit);
  const ClockCorrection correction{fit->points};
  for (const Meeting& m : all) {
    const int64_t there = planted.there(m.here.end) + wander(m.here.end);
    CHECK(std::abs(correction.ahead_at(there) - (there - m.here.end)) <= 150 * kUs);
  }
}

TEST_CASE("messages to and fro tell a clock as well as they are fast") {
  std::mt19937 random(24);
  const Planted planted;
  std::vector<Message> messages;
  for (int i = 0; i < 60; ++i) {
    const int64_t now = kStart + i * kSecond / 10, took = 5 * kUs + static_cast<int64_t>(random() % 100) * kUs;
    messages.push_back({true, now, planted.there(now + took)});
    messages.push_back({false, planted.there(now), now + took});
  }
  const auto fit = fit_clock({}, messages);
  REQUIRE(fit);
  const ClockCorrection correction{fit->points};
  for (const Message& m : messages) {
    const int64_t here = m.is_from_here ? m.sent : m.received, there = planted.there(here);
    CHECK(std::abs(correction.ahead_at(there) - (there - here)) <= std::min<int64_t>(30 * kUs, fit->error_ns));
  }
  std::erase_if(messages, [](const Message& m) { return m.is_from_here; });
  CHECK_FALSE(fit_clock({}, messages));  // those of one direction leave it open
}

TEST_CASE("a few that cannot be the same do no harm, and with many nothing is told") {
  std::mt19937 random(25);
  for (const size_t every : {40u, 3u}) {
    auto all = meetings(random, 200, 20'000 * kUs, {}, {});
    const auto right = all;
    for (size_t i = 0; i < all.size(); i += every)
      for (int64_t* time :
           {&all[i].there.last_begin, &all[i].there.first_end, &all[i].there.end, &all[i].there.last_end})
        *time += 20'000 * kUs;
    const auto fit = fit_clock(all, {});
    CHECK(fit.has_value() == (every == 40));
    if (fit) CHECK(worst(*fit, {}, right) <= 60 * kUs);
  }
  CHECK_FALSE(fit_clock({}, {}));
}

}  // namespace clock_fit_test
