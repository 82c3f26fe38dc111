// When a window opens and closes, without a program around it. One session is one process, so each case is a child.
#include "tracer/window.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tracer/plan/window_borders.h"
#include "tracer/session.h"

namespace window_test {

namespace fs = std::filesystem;
using namespace torchprof;
using window::WindowBorders;

namespace {

// The result of `body` in a child process with the window. `output`: nullptr for an existing directory.
bool holds(const char* spec, const std::function<bool()>& body, const char* output = nullptr) {
  char name[] = "/tmp/torchprof-window-XXXXXX";
  const fs::path own = mkdtemp(name);
  fs::create_directory(own / "spool");
  const pid_t child = fork();
  if (child == 0) {
    Config config;
    snprintf(config.window, sizeof(config.window), "%s", spec);
    session::arm(config, output ? output : own.c_str());
    window::start(config);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  fs::remove_all(own);
  CHECK(WIFEXITED(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// What happens on another thread while the window opens.
std::function<void()>& meanwhile() {
  static std::function<void()> what;
  return what;
}
void listen(const std::function<void()>& what) {
  meanwhile() = what;
  window::add_source({[]() noexcept { std::thread(meanwhile()).join(); }, []() noexcept {}});
}

void step(uint64_t key) { window::annotation_ended("Optimizer.step#SGD.step", key); }

}  // namespace

TEST_CASE("a range that ends while its window opens closes it") {
  CHECK(holds("range=x", [] {
    listen([] { window::annotation_ended("x", 7); });
    window::annotation_begins("x", 7);
    return !window::is_open() && window::number() == 1;
  }));
}

TEST_CASE("a range that begins while the window of another closes gets one, unless it is over by then") {
  for (const bool ends : {false, true}) {
    CHECK(holds("range=x", [ends] {
      static bool also_ends;
      also_ends = ends;
      const auto closed = []() noexcept {
        if (window::number() > 1) return;
        std::thread([] {
          window::annotation_begins("x", 8);
          if (also_ends) window::annotation_ended("x", 8);
        }).join();
      };
      window::add_source({[]() noexcept {}, closed});
      window::annotation_begins("x", 7);
      window::annotation_ended("x", 7);
      return window::is_open() == !also_ends && window::number() == (also_ends ? 1u : 2u);
    }));
  }
}

TEST_CASE("steps that end while the window opens are counted") {
  CHECK(holds("steps=1..2", [] {
    listen([] { step(1), step(2); });
    step(0);
    return !window::is_open() && window::number() == 1;
  }));
}

// No more than WindowBorders holds: the thread that passes them on may be delayed for as long as the others run.
TEST_CASE("steps that end on many threads at once are all counted") {
  for (int time = 0; time < 20; ++time)
    CHECK(holds("steps=240..241", [] {
      std::atomic<int> waiting{4};
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&waiting] {
          for (--waiting; waiting != 0;) std::this_thread::yield();
          for (uint64_t i = 0; i < 60; ++i) window::annotation_ended("Optimizer.step#A.step", i);
        });
      for (std::thread& thread : threads) thread.join();
      const bool was_open = window::is_open();
      window::annotation_ended("Optimizer.step#A.step", 0);
      window::annotation_ended("Optimizer.step#A.step", 0);
      return was_open && !window::is_open();
    }));
}

TEST_CASE("sources open in their order and close in the reverse one, the interpreter is last both times") {
  CHECK(holds("range=x", [] {
    static std::string calls;
    window::set_interpreter({{[]() noexcept { calls += "P"; }, []() noexcept { calls += "p"; }},
                             []() noexcept { return false; },
                             []() noexcept { return window::Stepper{}; },
                             []() noexcept { return false; },
                             []() noexcept {}});
    window::add_source({[]() noexcept { calls += "A"; }, []() noexcept { calls += "a"; }});
    window::add_source({[]() noexcept { calls += "B"; }, []() noexcept { calls += "b"; }});
    window::annotation_begins("x", 7);
    window::annotation_ended("x", 7);
    return calls == "ABPbap";
  }));
}

TEST_CASE("two optimizers of one class end one step, where there is an interpreter that tells them apart") {
  CHECK(holds("steps=3..4", [] {
    static ObjectId optimizer;
    const auto none = []() noexcept {};
    window::set_interpreter({{none, none},
                             []() noexcept { return false; },
                             []() noexcept { return window::Stepper{optimizer}; },
                             []() noexcept { return false; },
                             none});
    for (const uint32_t each : {1, 2, 1, 2}) optimizer = {each}, step(0);
    const bool was_open = window::number() > 0;
    for (const uint32_t each : {1, 2}) optimizer = {each}, step(0);
    return !was_open && window::is_open();
  }));
}

TEST_CASE("a window that cannot be recorded is none") {
  CHECK(holds(
      "steps=1..3",
      [] {
        for (uint64_t i = 0; i < 3; ++i) step(i);
        return !window::is_open() && window::number() == 0;
      },
      "/proc/nowhere"));
}

TEST_CASE("borders come out in the order in which they went in, as many as there is room for") {
  WindowBorders borders;
  WindowBorders::Border border{};
  for (uint64_t round = 0; round < 3; ++round) {
    uint64_t put = 0;
    while (borders.put({WindowBorders::Kind::kRangeBegin, put, {}})) ++put;
    CHECK(put == WindowBorders::kMost);
    CHECK(borders.has_any());
    for (uint64_t i = 0; i < put; ++i) {
      REQUIRE(borders.take(border));
      CHECK(border.value == i);
    }
    CHECK_FALSE(borders.take(border));
    CHECK_FALSE(borders.has_any());
  }
  borders.put({});
  borders.clear();
  CHECK_FALSE(borders.take(border));
}

}  // namespace window_test
