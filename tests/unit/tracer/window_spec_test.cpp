#include "tracer/config/window_spec.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace window_spec_test {

using torchprof::parse_window;
using torchprof::WindowSpec;
using Kind = WindowSpec::Kind;

namespace {

WindowSpec spec(const char* text) {
  WindowSpec out;
  char why[256];
  REQUIRE_MESSAGE(parse_window(text, out, why, sizeof(why)), std::string(text));
  return out;
}

std::vector<uint64_t> held(const char* text, uint64_t up_to) {
  std::vector<uint64_t> out;
  for (uint64_t step = 0; step <= up_to; ++step)
    if (spec(text).holds(step)) out.push_back(step);
  return out;
}

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("steps are counted from 0 and the last one is part of the window") {
  CHECK(held("steps=2..4", 9) == std::vector<uint64_t>{2, 3, 4});
  CHECK(held("steps=7", 9) == std::vector<uint64_t>{7});
  CHECK(held("steps=0..0", 9) == std::vector<uint64_t>{0});
}

TEST_CASE("a schedule captures the active steps of each of its cycles, as torch.profiler.schedule does") {
  CHECK(held("schedule=wait:1,warmup:1,active:2", 11) == std::vector<uint64_t>{2, 3, 6, 7, 10, 11});
  CHECK(held("schedule=skip_first:3,wait:1,warmup:0,active:1,repeat:2", 20) == std::vector<uint64_t>{4, 6});
  CHECK(held("schedule=active:3", 4) == std::vector<uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("a period is counted from the start of the program, in steps or in time") {
  CHECK(held("every=5steps,for=2steps", 17) == std::vector<uint64_t>{5, 6, 10, 11, 15, 16});
  CHECK(held("every=5steps,for=2steps,repeat=2", 17) == std::vector<uint64_t>{5, 6, 10, 11});
  const WindowSpec s = spec("every=10m,for=5s");
  CHECK(s.kind == Kind::kTime);
  CHECK(!s.holds(599 * kSecond));
  CHECK(s.holds(600 * kSecond));
  CHECK(!s.holds(605 * kSecond));
  CHECK(s.holds(1201 * kSecond));
}

TEST_CASE("a window of time may last to the end") {
  CHECK(spec("after=30s,for=5s").holds(34 * kSecond));
  CHECK(!spec("after=30s,for=5s").holds(35 * kSecond));
  CHECK(spec("after=250ms").holds(uint64_t{1} << 60));
}

TEST_CASE("the next change is where holding changes, and nowhere before") {
  for (const char* text : {"steps=2..4", "schedule=wait:1,warmup:1,active:2", "every=5steps,for=2steps,repeat=2",
                           "schedule=active:3", "schedule=active:3,repeat:2", "steps=0"}) {
    const WindowSpec s = spec(text);
    for (uint64_t at = 0; at < 20; ++at) {
      const uint64_t next = s.next_change(at);
      for (uint64_t i = at; i < next && i < 40; ++i) CHECK(s.holds(i) == s.holds(at));
      if (next != UINT64_MAX) CHECK(s.holds(next) != s.holds(at));
    }
  }
}

TEST_CASE("a range is a name, and a number only where one stands at its end") {
  CHECK(std::string(spec("range=epoch").range) == "epoch");
  CHECK(spec("range=epoch").nth == 0);
  CHECK(spec("range=epoch#3").nth == 3);
  CHECK(std::string(spec("range=epoch#3").range) == "epoch");
  CHECK(std::string(spec("range=Optimizer.step#SGD.step").range) == "Optimizer.step#SGD.step");
  CHECK(spec("range=Optimizer.step#SGD.step#2").nth == 2);
}

TEST_CASE("signals have names, with and without SIG") {
  CHECK(spec("signal=USR2").signal == spec("signal=SIGUSR2").signal);
  CHECK(spec("manual").kind == Kind::kManual);
  CHECK(spec("all").kind == Kind::kAll);
}

TEST_CASE("what is no window is refused, and what would be one is said") {
  WindowSpec out;
  char why[256];
  for (const char* text : {"",
                           "none",
                           "steps",
                           "steps=",
                           "steps=4..2",
                           "steps=1..",
                           "steps=-1",
                           "steps=1,2",
                           "steps=99999999999999999999",
                           "schedule=wait:1",
                           "schedule=active:0",
                           "schedule=active:1,cooldown:2",
                           "schedule=active:1,active",
                           "every=5steps",
                           "every=5s,for=2steps",
                           "every=5s,for=6s",
                           "every=0s,for=0s",
                           "every=5s,for=1s,repeat=0",
                           "after=5",
                           "after=5steps",
                           "after=5s,for=0s",
                           "after=5s,until=6s",
                           "after=9999999999h",
                           "range=",
                           "range=a#0",
                           "signal=KILL",
                           "signal=",
                           "signal=12",
                           "manual=1",
                           "all=1"}) {
    CAPTURE(text);
    why[0] = 0;
    CHECK(!parse_window(text, out, why, sizeof(why)));
    CHECK(why[0] != 0);
  }
}

}  // namespace window_spec_test
