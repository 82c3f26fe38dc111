// What recurs in programs without steps: in made-up programs of many shapes, with noise, the unit that was planted is
// found, with its spans; a program without one has none.
#include "formats/timeline/units.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/timeline/rare_parts.h"

namespace units_test {

using namespace torchprof::formats;

namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;

// A program that runs in made-up time; calls nest as its functions do.
class Program {
 public:
  explicit Program(uint32_t seed = 1) : random_(seed) { thread("main"); }

  void thread(const std::string& name) {
    t.rows.push_back({name});
    row_ = static_cast<uint32_t>(t.rows.size() - 1);
  }
  void on(uint32_t row) { row_ = row; }
  void wait(int64_t ns) { now += ns; }
  int64_t some(int64_t least, int64_t most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(double of_one) { return std::bernoulli_distribution(of_one)(random_); }

  void span(SpanKind kind, const std::string& name, const std::function<void()>& body) {
    const int64_t begin = now;
    body();
    t.rows[row_].spans.push_back({.begin = begin, .end = now, .name = t.name(name), .kind = kind});
  }
  void call(const std::string& name, const std::function<void()>& body) { span(SpanKind::kPython, name, body); }
  void module(const std::string& name, const std::function<void()>& body) {
    span(SpanKind::kModule, "nn.Module: " + name, body);
  }
  void op(const std::string& name, int64_t ns) {
    span(SpanKind::kOperator, name, [&] { now += ns; });
  }
  // One that is called from everywhere.
  void noise() {
    if (chance(0.5)) call("/home/u/util.py(3): log", [&] { wait(some(10, 100)); });
    if (chance(0.2)) span(SpanKind::kGc, "gc", [&] { wait(some(10, 100)); });
    if (chance(0.3)) op("aten::item", some(5, 20));
  }
  void starts() {
    wait(1'000);
    call("import torch", [&] {
      call("import torch.nn", [&] { wait(5'000'000); });
      for (int i = 0; i < 30; ++i) call("/home/u/util.py(3): log", [&] { wait(100'000); });
    });
    for (int i = 0; i < 3; ++i) call("/home/u/app.py(5): build", [&] { op("aten::normal_", some(5'000, 20'000)); });
  }
  RecurringUnit found(std::string_view chosen = {}) {
    wait(1'000);
    t.end = now;
    t.finish();
    return find_unit(t, {chosen});
  }

  Timeline t;
  int64_t now = 0;
  Spans planted;

 private:
  uint32_t row_ = 0;
  std::mt19937 random_;
};

Spans spans_of(const RecurringUnit& unit) {
  Spans spans;
  for (const StepSpan& s : unit.spans) spans.emplace_back(s.begin, s.end);
  return spans;
}

// From begin to next begin; the last one is left out.
Spans passes(const std::vector<int64_t>& begins) {
  Spans spans;
  for (size_t i = 1; i < begins.size(); ++i) spans.emplace_back(begins[i - 1], begins[i]);
  return spans;
}

constexpr uint32_t kSeeds = 25;

}  // namespace

TEST_CASE("the model's calls in a loop are the unit, up to the next call") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    std::vector<int64_t> begins;
    const bool is_flat = p.chance(0.5);
    const auto loop = [&] {
      const int64_t n = p.some(12, 60);
      for (int64_t i = 0; i < n; ++i) {
        if (p.chance(0.5)) p.op("aten::copy_", p.some(100, 300));
        begins.push_back(p.now);
        p.module("GPT_0", [&] {
          for (const char* layer : {"Layer_0", "Layer_1"})
            p.module(layer, [&] {
              p.noise();
              p.op("aten::mm", p.some(2'000, 4'000));
            });
        });
        p.op("aten::argmax", p.some(50, 100));
      }
    };
    p.call("/home/u/app.py(1): <module>", [&] {
      p.starts();
      if (is_flat)
        loop();
      else
        p.call("/usr/lib/python3/dist-packages/torch/utils/_contextlib.py(1): decorate_context",
               [&] { p.call("/home/u/app.py(30): generate", loop); });
      p.noise();
    });
    const RecurringUnit unit = p.found();
    CHECK(unit.name == "a call of GPT");
    CHECK(unit.is_pass);
    CHECK(unit.count == begins.size());
    CHECK(spans_of(unit) == passes(begins));
  }
}

TEST_CASE(
    "what is set up before and what runs at the interpreter's end do not hide the unit, if it has a quarter of all") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    std::vector<int64_t> begins;
    const int64_t n = p.some(12, 60), call = p.some(2'000, 200'000);
    const int64_t times_ten = p.some(0, 100);  // of the loop's time, what is done before it
    const auto main_module = [&] {
      p.starts();
      const int64_t setup = n * call * times_ten / 10;
      p.call("/home/u/app.py(3): read_weights", [&] { p.chance(0.5) ? p.op("aten::copy_", setup) : p.wait(setup); });
      for (int64_t i = 0; i < n; ++i) {
        begins.push_back(p.now);
        p.module("GPT_0", [&] { p.op("aten::mm", call); });
      }
    };
    const auto module = [&] { p.call("/home/u/app.py(1): <module>", main_module); };
    if (p.chance(0.5))
      p.call("<frozen runpy>(201): _run_module_as_main", module);
    else
      module();
    const int64_t at_exit = p.some(0, 1'000'000'000);
    p.call("/usr/lib/python3/weakref.py(641): _exitfunc", [&] {
      for (int i = 0; i < 20; ++i)
        p.call("/usr/lib/python3/dist-packages/torch/library.py(648): _del_library", [&] { p.wait(at_exit / 20); });
    });
    const RecurringUnit unit = p.found();
    if (times_ten <= 29) {
      CHECK(unit.name == "a call of GPT");
      CHECK(spans_of(unit) == passes(begins));
    } else if (times_ten >= 31) {
      CHECK(unit.name.empty());
    }
  }
}

TEST_CASE("the outer function is preferred that recurs itself, and a decorator's frame does not hide it") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    std::vector<int64_t> begins;
    p.call("/home/u/app.py(1): <module>", [&] {
      p.starts();
      for (int64_t i = 0, n = p.some(10, 30); i < n; ++i)
        p.call("/usr/lib/python3/dist-packages/torch/autograd/grad_mode.py(24): decorate_context", [&] {
          begins.push_back(p.now);
          p.call("/home/u/app.py(9): predict", [&] {
            for (int k = 0; k < 12; ++k) p.module("Encoder_0", [&] { p.op("aten::mm", p.some(1'000, 2'000)); });
            p.noise();
          });
        });
    });
    const RecurringUnit unit = p.found();
    CHECK(unit.name == "a call of predict (app.py)");
    CHECK(spans_of(unit) == passes(begins));
  }
}

TEST_CASE("requests last as long as their handler: on threads, in an event loop, and where the server has but one") {
  enum Server { kThreads, kEventLoop, kTwoAwaits, kOne };
  for (uint32_t seed = 0; seed < kSeeds; ++seed)
    for (const Server server : {kThreads, kEventLoop, kTwoAwaits, kOne}) {
      CAPTURE(seed);
      CAPTURE(server);
      Program p(seed);
      Spans requests;
      const auto handle = [&] {
        const int64_t begin = p.now;
        p.call("/home/u/server.py(8): handle_it", [&] {
          p.wait(p.some(100, 300));
          p.module("Net_0", [&] { p.op("aten::addmm", p.some(2'000, 5'000)); });
          p.noise();
        });
        requests.emplace_back(begin, p.now);
      };
      p.call("/home/u/server.py(1): <module>", [&] {
        p.starts();
        const auto serve = [&] {
          for (int64_t i = 0, n = p.some(15, 40); i < n; ++i) {
            p.call("selectors.py(400): select", [&] { p.wait(p.some(10'000, 90'000)); });
            if (server == kTwoAwaits)  // a stretch up to its second await computes nothing
              p.call("asyncio/events.py(78): _run",
                     [&] { p.call("/home/u/server.py(8): handle_it", [&] { p.wait(p.some(60, 150)); }); });
            if (server == kEventLoop || server == kTwoAwaits) p.call("asyncio/events.py(78): _run", handle);
            if (server == kOne)
              p.call("socketserver.py(310): _handle_request_noblock",
                     [&] { p.call("http/server.py(391): handle_one_request", handle); });
            if (server == kThreads) {
              p.thread("handler");
              p.call("threading.py(1021): _bootstrap_inner",
                     [&] { p.call("http/server.py(391): handle_one_request", handle); });
              p.on(0);
            }
          }
        };
        p.call(server == kEventLoop || server == kTwoAwaits ? "asyncio/base_events.py(593): run_forever"
                                                            : "socketserver.py(215): serve_forever",
               serve);
      });
      const RecurringUnit unit = p.found();
      CHECK(unit.name == "a request of handle_it (server.py)");
      CHECK(!unit.is_pass);
      CHECK(unit.count == requests.size());
      CHECK(spans_of(unit) == requests);
      // All that the requests did is on one row, and the first one is left out.
      use_unit(p.t, unit);
      CHECK(p.t.unit == unit.name);
      REQUIRE(p.t.steps.size() == requests.size() - 1);
      const TimelineRow& row = server == kThreads ? p.t.rows.back() : p.t.rows.front();
      for (const StepSpan& step : p.t.steps)
        CHECK(std::ranges::any_of(row.spans, [&](const TimelineSpan& s) {
          return s.begin == step.begin && s.end == step.end && p.t.text(s.name) == "/home/u/server.py(8): handle_it";
        }));
      for (const TimelineRow& each : p.t.rows)
        for (const TimelineSpan& s : each.spans)
          CHECK((s.parent == kNoSpan || (each.spans[s.parent].begin <= s.begin && s.end <= each.spans[s.parent].end)));
    }
}

TEST_CASE("a function that calls itself counts from outside") {
  Program p;
  std::vector<int64_t> begins;
  const std::function<void(int)> walk = [&](int depth) {
    p.call("/home/u/app.py(4): walk", [&] {
      p.wait(100);
      if (depth > 0) walk(depth - 1), walk(depth - 1);
    });
  };
  p.call("/home/u/app.py(1): <module>", [&] {
    p.starts();
    for (int i = 0; i < 20; ++i) {
      begins.push_back(p.now);
      walk(4);
      p.op("aten::add", 10);
    }
  });
  const RecurringUnit unit = p.found();
  CHECK(unit.name == "a call of walk (app.py)");
  CHECK(unit.count == 20);
  CHECK(spans_of(unit) == passes(begins));
}

TEST_CASE("a loop of many small calls is a pass of the loop, named by who has it") {
  Program p;
  p.call("/home/u/app.py(1): <module>", [&] {
    p.starts();
    p.call("/home/u/app.py(20): main", [&] {
      for (int i = 0; i < 30; ++i) {
        p.call("/home/u/app.py(3): read", [&] { p.wait(3'000); });
        p.call("/home/u/app.py(6): clean", [&] { p.wait(2'900); });
        p.op("aten::mm", 3'000);
      }
    });
  });
  const RecurringUnit unit = p.found();
  CHECK(unit.name == "a pass of the loop in main (app.py)");
  CHECK(unit.is_pass);
  CHECK(unit.spans.size() == 29);
  for (const StepSpan& s : unit.spans) CHECK(s.end - s.begin == 8'900);
}

TEST_CASE("modules that are made anew for each call are one") {
  Program p;
  p.call("/home/u/app.py(1): <module>", [&] {
    p.starts();
    for (int i = 0; i < 15; ++i)
      p.module("TopLevelTracedModule_" + std::to_string(i), [&] { p.op("aten::mm", 30'000); });
  });
  CHECK(p.found().name == "a call of TopLevelTracedModule");
}

TEST_CASE("a program in which nothing recurs has no unit, and its begin moves past the imports") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    int64_t begun = 0;
    const auto timed = [&](const std::function<void()>& body) { p.call("/home/u/app.py(3): timed", body); };
    p.call("/home/u/app.py(1): <module>", [&] {
      p.wait(1'000);
      p.call("import os", [&] { p.wait(1'000); });
      p.call("import torch", [&] { p.wait(8'000'000); });
      begun = p.now;
      for (int64_t i = 0; i < 12; ++i) {
        p.noise();
        // A helper that is around all of it: one of its calls takes nearly everything.
        timed([&] {
          p.call("/home/u/app.py(" + std::to_string(10 + i) + "): part", [&] {
            p.op("aten::mm", i == 5 ? 900'000 : p.some(1'000, 9'000));
            if (i == 6) p.call("import json", [&] { p.wait(100); });
          });
        });
      }
    });
    const RecurringUnit unit = p.found();
    CHECK(unit.name.empty());
    CHECK(unit.spans.empty());
    use_unit(p.t, unit);
    CHECK(p.t.begin == begun);
    CHECK(p.t.steps.empty());
    CHECK(p.t.imports.ns == 8'001'100);
    CHECK(p.t.imports.most == "import torch");
    CHECK(p.t.imports.first_ns == 8'001'000);
  }
}

TEST_CASE("requests that the machine holds up are the unit as all others are") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    Spans requests;
    // None, one, some or most of them take a thousand times as long as the others.
    const double held_up = static_cast<double>(p.some(0, 9)) / 10;
    p.call("/home/u/server.py(1): <module>", [&] {
      p.starts();
      p.call("asyncio/base_events.py(593): run_forever", [&] {
        for (int64_t i = 0, n = p.some(15, 40); i < n; ++i)
          p.call("asyncio/events.py(78): _run", [&] {
            const int64_t begin = p.now;
            p.call("/home/u/server.py(8): handle_it", [&] {
              p.wait(p.some(10, 30));
              p.module("Net_0",
                       [&] { p.op("aten::mm", p.some(20'000, 50'000) * (i > 0 && p.chance(held_up) ? 1000 : 1)); });
            });
            requests.emplace_back(begin, p.now);
          });
      });
    });
    const RecurringUnit unit = p.found();
    CHECK(unit.name == "a request of handle_it (server.py)");
    CHECK(spans_of(unit) == requests);
  }
}

TEST_CASE("the interpreter's imports before the main module are no work, however long it pauses between them") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    p.call("import encodings", [&] { p.wait(1'000'000); });
    p.wait(p.some(0, 50'000'000));
    p.call("import site", [&] {
      p.wait(20'000'000);
      p.call("import os", [&] { p.wait(60'000'000); });
    });
    const int64_t ended = p.now;
    p.wait(p.some(0, 50'000'000));
    p.call("/home/u/app.py(1): <module>", [&] { p.wait(2'000'000); });
    use_unit(p.t, p.found());
    CHECK(p.t.begin == ended);
    CHECK(p.t.imports.first_ns == 81'000'000);
    CHECK(p.t.imports.most == "import site");
  }
}

TEST_CASE("what is called after the main module has ended is no work, unless another thread does it") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    // As "python -m" has it, or a file.
    const bool is_run_by_name = p.chance(0.5);
    p.call(is_run_by_name ? "<frozen runpy>(201): _run_module_as_main" : "/home/u/app.py(1): <module>", [&] {
      p.wait(1'000);
      p.call("import torch", [&] { p.wait(80'000); });
      p.op("aten::mm", p.some(10'000, 90'000));
    });
    const int64_t ended = p.now;
    int64_t last = ended;
    for (int64_t n = p.some(1, 6); n-- > 0;) {
      p.wait(p.some(100, 10'000));
      if (p.chance(0.5)) p.call("/home/u/app.py(9): at_exit", [&] { p.noise(); });
      if (p.chance(0.5)) p.call("/usr/lib/python3/logging/__init__.py(9): shutdown", [&] { p.wait(900'000); });
      p.span(SpanKind::kGc, "gc", [&] { p.wait(5'000'000); });
    }
    const bool has_thread = p.chance(0.5);
    if (has_thread) {
      p.thread("loader");
      p.call("/home/u/app.py(12): load", [&] { p.wait(2'000'000); });
      last = p.now;
      p.on(0);
    }
    const RecurringUnit unit = p.found();
    REQUIRE(unit.name.empty());
    use_unit(p.t, unit);
    CHECK(p.t.end == last);
  }
}

TEST_CASE("what is chosen is the unit, however little it takes") {
  const auto program = [](Program& p) {
    p.call("/home/u/app.py(1): <module>", [&] {
      p.starts();
      for (int i = 0; i < 20; ++i) {
        p.module("GPT_0", [&] { p.op("aten::mm", 3'000); });
        p.call("/home/u/app.py(7): tell", [&] { p.wait(10); });
        p.span(SpanKind::kAnnotation, "batch " + std::to_string(i), [&] { p.wait(50); });
      }
    });
  };
  for (const auto& [chosen, name] : {std::pair("tell", "a call of tell (app.py)"),
                                     {"app.py:tell", "a call of tell (app.py)"},
                                     {"GPT", "a call of GPT"},
                                     {"GPT_0", "a call of GPT"},
                                     {"range=batch", "a range \"batch\""}}) {
    CAPTURE(chosen);
    Program p;
    program(p);
    const RecurringUnit unit = p.found(chosen);
    CHECK(unit.name == name);
    CHECK(unit.spans.size() == 19);
  }
  Program p;
  program(p);
  CHECK(p.found("other.py:tell").name.empty());
}

TEST_CASE("no unit crosses what was not recorded") {
  Program p;
  std::vector<int64_t> begins;
  p.call("/home/u/app.py(1): <module>", [&] {
    for (int i = 0; i < 30; ++i) {
      begins.push_back(p.now);
      p.module("GPT_0", [&] { p.op("aten::mm", 3'000); });
      p.op("aten::add", 100);
    }
  });
  p.wait(1'000);
  p.t.end = p.now;
  p.t.finish();
  const std::vector<StepSpan> windows{{begins[0] - 1, begins[15] - 10}, {begins[15] - 5, p.t.end}};
  const RecurringUnit unit = find_unit(p.t, {.windows = windows});
  CHECK(unit.count == 30);
  CHECK(unit.spans.size() == 28);
  for (const StepSpan& s : unit.spans) CHECK(s.end - s.begin == 3'100);
}

TEST_CASE("what some steps alone have is found with its distance, also inside of what all have") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    int64_t saved = 0, evaluated = 0;
    p.call("/home/u/app.py(1): <module>", [&] {
      for (uint64_t i = 0; i < 60; ++i) {
        const int64_t begin = p.now;
        p.call("/home/u/app.py(5): train_step", [&] { p.op("aten::mm", p.some(8'000, 12'000)); });
        p.noise();
        p.call("/home/u/app.py(20): callbacks", [&] {
          p.wait(10);
          const int64_t ns = p.some(60'000, 80'000);
          if (i % 10 == 9) p.call("/home/u/app.py(30): save", [&] { p.wait(ns), saved += ns; });
        });
        const int64_t ns = p.some(30'000, 90'000);
        if (i == 7 || i == 20 || i == 50) p.call("/home/u/app.py(40): evaluate", [&] { p.wait(ns), evaluated += ns; });
        p.t.steps.push_back({begin, p.now, i});
      }
    });
    p.t.end = p.now;
    p.t.finish();
    const std::vector<RarePart> parts = rare_parts_of(p.t);
    REQUIRE(parts.size() == 2);
    const auto name = [&](const RarePart& part) { return p.t.text(p.t.span(part.row, part.span).name); };
    CHECK(name(parts[0]) == "/home/u/app.py(30): save");
    CHECK(parts[0].steps == 6);
    CHECK(parts[0].of_steps == 60);
    CHECK(parts[0].every == 10);
    CHECK(parts[0].all_ns == saved);
    CHECK(name(parts[1]) == "/home/u/app.py(40): evaluate");
    CHECK(parts[1].steps == 3);
    CHECK(parts[1].every == 0);
    CHECK(parts[1].all_ns == evaluated);
  }
}

TEST_CASE("the phases of a program are no parts that some steps alone have") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    const int64_t phases = p.some(2, 6);
    p.call("/home/u/app.py(1): <module>", [&] {
      for (uint64_t phase = 0, step = 0; phase < static_cast<uint64_t>(phases); ++phase) {
        const std::string model = "Net_" + std::to_string(phase);
        for (int64_t left = p.some(4, 60); left > 0; --left) {
          const int64_t begin = p.now;
          p.module(model, [&] { p.op("aten::mm", p.some(8'000, 12'000)); });
          p.noise();
          p.t.steps.push_back({begin, p.now, step++});
        }
      }
    });
    p.t.end = p.now;
    p.t.finish();
    CHECK(rare_parts_of(p.t).empty());
  }
}

TEST_CASE("what few steps do far more often than the others is found by its calls, however long any of them takes") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Program p(seed);
    int64_t played = 0;
    p.call("/home/u/app.py(1): <module>", [&] {
      for (uint64_t i = 0; i < 60; ++i) {
        const int64_t begin = p.now;
        const bool is_rollout = i % 15 == 3;
        for (int64_t n = is_rollout ? p.some(30, 40) : 0; n-- > 0;) {
          const int64_t from = p.now;
          p.call("/home/u/app.py(9): act",
                 [&] { p.module("Policy_0", [&] { p.op("aten::mm", p.some(800, 1'200)); }); });
          played += p.now - from;
        }
        // Held up now and then.
        const int64_t from = p.now;
        p.call("/home/u/app.py(9): act", [&] { p.op("aten::mm", p.chance(0.1) ? 90'000 : 1'000); });
        if (is_rollout) played += p.now - from;
        p.op("aten::mm", 5'000);
        p.t.steps.push_back({begin, p.now, i});
      }
    });
    p.t.end = p.now;
    p.t.finish();
    const std::vector<RarePart> parts = rare_parts_of(p.t);
    REQUIRE(parts.size() == 1);
    CHECK(p.t.text(p.t.span(parts[0].row, parts[0].span).name) == "/home/u/app.py(9): act");
    CHECK(parts[0].steps == 4);
    CHECK(parts[0].every == 15);
    CHECK(parts[0].calls >= 31);
    CHECK(parts[0].calls <= 41);
    CHECK(parts[0].all_ns == played);
  }
}

TEST_CASE(
    "what a coroutine does between two awaits is a stretch of it, and no request, where it does now this, now that") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed)
    for (const bool awaits : {false, true}) {
      CAPTURE(seed);
      CAPTURE(awaits);
      Program p(seed);
      p.call("/home/u/server.py(1): <module>", [&] {
        p.starts();
        const auto serve = [&] {
          const auto run = [&](const std::function<void()>& body) {
            p.call("selectors.py(400): select", [&] { p.wait(p.some(10'000, 90'000)); });
            p.call("asyncio/events.py(78): _run", [&] { p.call("/home/u/server.py(8): handle", body); });
          };
          const auto read = [&] { p.call("/home/u/server.py(30): parse", [&] { p.wait(1'000); }); };
          const auto answer = [&] { p.module("Net_0", [&] { p.op("aten::addmm", p.some(2'000, 5'000)); }); };
          if (awaits) run(read);
          run([&] {
            if (!awaits) read();
            answer();
          });
          if (awaits) run([&] { p.wait(500); });
        };
        p.call("asyncio/base_events.py(593): run_forever", [&] {
          for (int i = 0; i < 20; ++i) serve();
        });
      });
      const RecurringUnit unit = p.found();
      CHECK(unit.name == (awaits ? "a stretch of handle (server.py)" : "a request of handle (server.py)"));
      CHECK(unit.is_part == awaits);
    }
}

}  // namespace units_test
