// What advice says of time inside operators, from names, shapes and autograd's numbers; programs that do so are in
// tests/e2e/files/test_operator_advice.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/advice/operator_kinds.h"
#include "formats/advice/rules.h"
#include "formats/trace/names.h"

namespace operator_advice_test {

using namespace torchprof::formats;

namespace {

constexpr int64_t kUs = 1000, kStepNs = 10'000 * kUs;
constexpr uint8_t kF32 = 6, kF64 = 7;

Input t(std::vector<int64_t> sizes, uint8_t type = kF32) {
  Input input{.kind = Input::Kind::kTensor};
  input.tensors.push_back({.is_readable = true, .type = type, .sizes = std::move(sizes)});
  return input;
}
Input n(int64_t value) { return {.kind = Input::Kind::kScalar, .integers = {value}}; }
using Inputs = std::vector<Input>;

// A program's thread: spans are written one after the other, inside of those that are open.
class Program {
 public:
  Program() { timeline.rows.resize(1); }

  void begin(SpanKind kind, const std::string& name, Inputs inputs = {}, uint32_t sequence = 0) {
    open_.push_back({.begin = now,
                     .end = now,
                     .name = timeline.name(name),
                     .inputs = inputs.empty() ? 0 : timeline.add_inputs(std::move(inputs)),
                     .sequence = sequence,
                     .kind = kind});
  }
  void end() {  // spans come in the order of their ends, as from a replay
    open_.back().end = now;
    timeline.rows[0].spans.push_back(open_.back());
    open_.pop_back();
  }
  void op(const std::string& name, int64_t us, Inputs inputs = {}, uint32_t sequence = 0) {
    begin(SpanKind::kOperator, name, std::move(inputs), sequence);
    now += us * kUs;
    end();
  }
  void in(SpanKind kind, const std::string& name, const std::function<void()>& body) {
    begin(kind, name);
    body();
    end();
  }
  void function(const std::string& name, const std::function<void()>& body) {
    in(SpanKind::kPython, "train.py(" + std::to_string(10 + name.size()) + "): " + name, body);
  }
  void pass(const char* how, const std::function<void()>& body) {
    in(SpanKind::kPython, std::string("torch/autograd/__init__.py(200): ") + how, body);
  }
  // A node of the backward, with one operator inside.
  void node(const std::string& name, const std::string& inner, int64_t us, uint32_t sequence, Inputs inputs = {}) {
    in(SpanKind::kOperator, "autograd::engine::evaluate_function: " + name, [&] {
      begin(SpanKind::kOperator, name, {}, sequence);
      op(inner, us, std::move(inputs));
      end();
    });
  }
  void accumulate(std::vector<int64_t> sizes, int64_t us = 2) {
    in(SpanKind::kOperator, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
       [&] { op("torch::autograd::AccumulateGrad", us, {t(std::move(sizes))}); });
  }

  Timeline timeline;
  int64_t now = 0;

 private:
  std::vector<TimelineSpan> open_;
};

struct Said {
  Findings findings;
  Claimed claimed;
  int64_t step_ns = 0;

  const Finding* of(std::string_view rule) const {
    const auto found = std::ranges::find(findings, rule, &Finding::rule);
    return found == findings.end() ? nullptr : &*found;
  }
};

Said look_at(Timeline& timeline, bool and_in_python = false) {
  timeline.end = timeline.steps.empty() ? 1 : timeline.steps.back().end;
  timeline.finish();
  const StepView view(timeline);
  const std::vector<MemoryGrowth> growth;
  Subject subject{view, std::nullopt, std::nullopt, growth};
  Said said;
  said.claimed = find_in_operators(subject, said.findings);
  subject.claimed = said.claimed;
  if (and_in_python) find_in_python(subject, said.findings);
  said.step_ns = view.step_ns();
  return said;
}

// Steps of 10 ms, or more where `body` takes more, in main() of a program; numbers of autograd go on.
Said advice(const std::function<void(Program&, uint32_t sequence)>& body, size_t steps = 4,
            bool and_in_python = false) {
  Program p;
  p.function("main", [&] {
    for (size_t step = 0; step < steps; ++step) {
      const int64_t begin = p.now;
      body(p, static_cast<uint32_t>(step * 1000 + 1));
      p.now = std::max(p.now, begin + kStepNs);
      p.timeline.steps.push_back({begin, p.now, step});
    }
  });
  return look_at(p.timeline, and_in_python);
}

void update(Program& p, const std::string& optimizer, const std::function<void()>& body) {
  p.in(SpanKind::kAnnotation, "Optimizer.step#" + optimizer + ".step",
       [&] { p.in(SpanKind::kPython, "torch/optim/adam.py(200): step", body); });
}

}  // namespace

TEST_CASE("an optimizer that updates tensors one by one is told with what would do it at once") {
  const auto with = [](const std::string& optimizer, const std::string& prefix, int count, int64_t elements) {
    return advice([&](Program& p, uint32_t) {
      update(p, optimizer, [&] {
        for (int i = 0; i < count; ++i)
          for (const char* op : {"mul_", "addcmul_", "addcdiv_"}) p.op(prefix + op, 10, {t({elements}), t({elements})});
      });
    });
  };
  const Said said = with("Adam", "aten::", 200, 16);
  const Finding* f = said.of("optimizer");
  REQUIRE(f != nullptr);
  CHECK(f->what.find("Adam updates 200 tensors one by one") == 0);
  CHECK(f->todo.find("fused=True") != std::string::npos);
  CHECK(f->cost_ns > 5'000 * kUs);  // 6 ms less 200 times 1.5 us
  CHECK(f->cost_ns < 6'000 * kUs);
  CHECK(with("RMSprop", "aten::", 200, 16).of("optimizer")->todo.find("foreach=True") != std::string::npos);
  CHECK(with("RMSprop", "aten::", 200, 4000).of("optimizer") == nullptr);  // 3 MB: slower with foreach=True
  CHECK(with("Adam", "aten::", 200, 4000).of("optimizer") != nullptr);
  CHECK(with("Adam", "aten::_foreach_", 200, 16).of("optimizer") == nullptr);
  CHECK(with("Adam", "aten::", 10, 16).of("optimizer") == nullptr);      // few tensors
  CHECK(with("SGD", "aten::", 200, 10'000).of("optimizer") == nullptr);  // it is the memory that takes the time
}

TEST_CASE("loops over parameters outside of optimizers are told; a forward on its weights is none") {
  const auto with = [](const std::function<void(Program&)>& loop) {
    return advice([&](Program& p, uint32_t) {
      p.pass("backward", [&] {
        for (int i = 0; i < 60; ++i) p.accumulate({16, 8 + i % 3});
      });
      loop(p);
    });
  };
  const Said average = with([](Program& p) {
    p.function("average", [&] {
      for (int i = 0; i < 60; ++i) {
        p.op("aten::mul_", 10, {t({16, 8 + i % 3})});
        p.op("aten::add_", 10, {t({16, 8 + i % 3}), t({16, 8 + i % 3})});
        p.now += 5 * kUs;
      }
    });
  });
  const Finding* f = average.of("parameter loop");
  REQUIRE(f != nullptr);
  CHECK(f->todo.find("torch._foreach_") != std::string::npos);
  CHECK(f->where == "train.py(17): average");
  CHECK(f->cost_ns > 1'300 * kUs);             // 60 times 25 us
  CHECK(average.claimed.between.size() == 4);  // in each step's call of the function
  const Said norms = with([](Program& p) {
    for (int i = 0; i < 60; ++i) p.function("norm_of", [&] { p.op("aten::norm", 20, {t({16, 8 + i % 3})}); });
  });
  REQUIRE(norms.of("parameter loop") != nullptr);
  CHECK(norms.of("parameter loop")->todo.find("clip_grad_norm_") != std::string::npos);
  CHECK(with([](Program& p) {
          for (int i = 0; i < 60; ++i)
            p.in(SpanKind::kModule, "nn.Module: Linear_0", [&] { p.op("aten::mul", 20, {t({16, 8 + i % 3})}); });
        }).of("parameter loop") == nullptr);
}

TEST_CASE("each of several loops over parameters in one function is told, however often each comes") {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> loops = {"mul_", "norm", "abs", "clone"};
    std::ranges::shuffle(loops, random);
    loops.resize(1 + random() % loops.size());
    CAPTURE(round);
    const Said said = advice([&](Program& p, uint32_t) {
      for (int i = 0; i < 60; ++i) p.accumulate({64, 64});
      p.function("follow", [&] {
        for (const std::string& loop : loops) {
          const uint64_t times = 60 + random() % 2;
          for (uint64_t i = 0; i < times; ++i) p.op("aten::" + loop, 12, {t({64, 64})});
        }
      });
    });
    CHECK(std::ranges::count(said.findings, "parameter loop", &Finding::rule) ==
          static_cast<std::ptrdiff_t>(loops.size()));
  }
}

TEST_CASE("small operators are told by what they work on, and a network's own only where they are much") {
  const auto with = [](std::vector<int64_t> sizes, bool has_backward, int count) {
    return advice(
        [&](Program& p, uint32_t sequence) {
          p.function("forward", [&] {
            for (int i = 0; i < count; ++i)
              p.op("aten::add", 5, {t(sizes)}, has_backward ? sequence + static_cast<uint32_t>(i) : 0);
          });
        },
        4, true);
  };
  const auto says = [](const Said& said) {
    const Finding* f = said.of("tiny operators");
    return f == nullptr ? std::string() : f->what + " " + f->todo;
  };
  for (const int count : {120, 400})
    for (const bool has_backward : {false, true}) {
      CAPTURE(count);
      CAPTURE(has_backward);
      CHECK(says(with({12}, has_backward, count)).find("on a few elements each") != std::string::npos);
      const std::string of_many = says(with({32, 48}, has_backward, count));
      if (has_backward && count == 120)
        CHECK(of_many.empty());
      else
        CHECK(of_many.find("on small tensors") != std::string::npos);
      CHECK((of_many.find("torch.compile") != std::string::npos) == (has_backward && count == 400));
      CHECK(of_many.find("tolist") == std::string::npos);
    }
}

TEST_CASE("an optimizer that replaces another in most steps is told with what it takes to make it") {
  const auto with = [](size_t replacing, const std::string& file) {
    Program p;
    for (size_t step = 0; step < 8; ++step)
      p.timeline.set_replacing(p.timeline.name("Optimizer: Adam_" + std::to_string(step)));
    p.function("main", [&] {
      for (size_t step = 0; step < 8; ++step) {
        const int64_t begin = p.now;
        const bool is_new = step < replacing;
        if (is_new) p.in(SpanKind::kPython, file + "(30): __init__", [&] { p.now += 400 * kUs; });
        p.op("aten::mm", 1000);
        p.in(SpanKind::kModule, is_new ? "Optimizer: Adam_" + std::to_string(step) : "Optimizer: Adam_99", [&] {
          if (is_new) p.in(SpanKind::kPython, file + "(140): _init_group", [&] { p.op("aten::zeros_like", 600); });
        });
        p.now = begin + kStepNs;
        p.timeline.steps.push_back({begin, p.now, step});
      }
    });
    return look_at(p.timeline);
  };
  const Said anew = with(8, "/usr/lib/python3/dist-packages/torch/optim/adam.py");
  REQUIRE(anew.of("new optimizer") != nullptr);
  CHECK(anew.of("new optimizer")->cost_ns == 1000 * kUs);
  CHECK(with(3, "/usr/lib/python3/dist-packages/torch/optim/adam.py").of("new optimizer") == nullptr);
  CHECK(with(8, "/home/u/adam.py").of("new optimizer") == nullptr);
}

TEST_CASE("functions of libraries that enclose operators name the cause") {
  const auto inside = [](const char* function) {
    return advice([&](Program& p, uint32_t) {
      p.in(SpanKind::kPython, function, [&] {
        for (int i = 0; i < 50; ++i) p.op("aten::copy_", 40, {t({300, 300}), t({300, 300})});
      });
    });
  };
  CHECK(inside("/usr/lib/python3/dist-packages/torch/_tensor_str.py(600): _str").of("printing") != nullptr);
  CHECK(inside("/usr/lib/python3.11/copy.py(128): deepcopy").of("copying") != nullptr);
  CHECK(inside("/usr/lib/python3/dist-packages/torch/autograd/functional.py(10): jacobian").of("jacobian") != nullptr);
  CHECK(inside("/usr/lib/python3.11/copy.py(128): deepcopy").findings.size() == 1);  // it claims what is inside
  CHECK(inside("copy.py(128): deepcopy").of("copying") != nullptr);
  CHECK(inside("photocopy.py(9): deepcopy").of("copying") == nullptr);
}

TEST_CASE("checks for NaN are told, of autograd as anomaly detection") {
  const Said anomaly = advice([](Program& p, uint32_t sequence) {
    p.pass("backward", [&] {
      for (uint32_t i = 0; i < 40; ++i)
        p.in(SpanKind::kOperator, "autograd::engine::evaluate_function: AddmmBackward0", [&] {
          p.op("AddmmBackward0", 50, {}, sequence + i);
          p.op("aten::isnan", 20);
          p.op("aten::any", 10);
          p.op("aten::is_nonzero", 10);
        });
    });
  });
  REQUIRE(anomaly.of("anomaly detection") != nullptr);
  CHECK(anomaly.of("anomaly detection")->cost_ns == 40 * 40 * kUs);
  const auto check = [](Program& p) {
    p.op("aten::isfinite", 20, {t({64, 64})});
    p.op("aten::all", 10);
    p.op("aten::is_nonzero", 10);
  };
  const Said inlined = advice([&](Program& p, uint32_t) {
    for (int i = 0; i < 30; ++i) {
      p.op("aten::mm", 100, {t({64, 64}), t({64, 64})});
      check(p);
    }
  });
  REQUIRE(inlined.of("checking") != nullptr);
  CHECK(inlined.of("checking")->cost_ns == 30 * 40 * kUs);
  CHECK(inlined.of("checking")->where == "train.py(14): main");
  const Said called = advice([&](Program& p, uint32_t) {
    for (int i = 0; i < 30; ++i) p.function("sane", [&] { check(p), p.now += 7 * kUs; });
  });
  REQUIRE(called.of("checking") != nullptr);
  CHECK(called.of("checking")->cost_ns == 30 * 47 * kUs);                   // with the Python of the function
  CHECK(advice([&](Program& p, uint32_t) { check(p); }).findings.empty());  // once a step is sane
}

TEST_CASE("values that are read one by one are a finding, one a step is none") {
  const auto with = [](int count) {
    return advice([&](Program& p, uint32_t) {
      p.function("accuracy", [&] {
        for (int i = 0; i < count; ++i) {
          p.op("aten::select", 3, {t({256}), n(0), n(i)});
          p.op("aten::item", 2, {t({})});
          p.now += 4 * kUs;
        }
      });
    });
  };
  const Said said = with(256);
  const Finding* f = said.of("reading values");
  REQUIRE(f != nullptr);
  CHECK(f->evidence.find("256 values") == 0);
  CHECK(f->cost_ns > 255 * 9 * kUs - 1);  // the last one's Python is not in it
  CHECK(f->cost_ns <= 256 * 9 * kUs);
  CHECK(with(1).findings.empty());
}

TEST_CASE("a pass that nothing needs is told; one that a later one goes through, or that accumulates, is not") {
  const auto forward = [](Program& p, uint32_t sequence, int64_t us = 100) {
    p.in(SpanKind::kModule, "nn.Module: Net_0", [&] {
      for (uint32_t i = 0; i < 10; ++i) p.op("aten::linear", us, {t({32, 64}), t({64, 64})}, sequence + i);
    });
  };
  const auto backward = [](Program& p, const char* how, uint32_t sequence, int64_t us = 100) {
    p.pass(how, [&] {
      for (uint32_t i = 10; i-- > 0;) p.node("AddmmBackward0", "aten::mm", us, sequence + i);
    });
  };
  const Said logged = advice([&](Program& p, uint32_t s) {
    p.function("grad_norm", [&] { forward(p, s), backward(p, "grad", s); });
    forward(p, s + 100);
    backward(p, "backward", s + 100);
  });
  REQUIRE(logged.of("second backward") != nullptr);
  CHECK(logged.of("second backward")->cost_ns == 2000 * kUs);
  CHECK(logged.of("second backward")->where == "train.py(19): grad_norm");
  const Said penalty = advice([&](Program& p, uint32_t s) {
    forward(p, s);
    p.pass("grad", [&] {
      for (uint32_t i = 10; i-- > 0;)
        p.in(SpanKind::kOperator, "autograd::engine::evaluate_function: AddmmBackward0", [&] {
          p.begin(SpanKind::kOperator, "AddmmBackward0", {}, s + i);
          p.op("aten::mm", 100, {}, s + 100 + i);  // create_graph=True
          p.end();
        });
    });
    backward(p, "backward", s + 100);
  });
  CHECK(penalty.of("second backward") == nullptr);
  const Said accumulated = advice([&](Program& p, uint32_t s) {
    for (uint32_t i = 0; i < 2; ++i) {
      forward(p, s + i * 100);
      backward(p, "backward", s + i * 100);
    }
  });
  CHECK(accumulated.findings.empty());
  const Said retained = advice([&](Program& p, uint32_t s) {
    forward(p, s, 200);
    backward(p, "backward", s, 200);
    backward(p, "backward", s, 200);
  });
  REQUIRE(retained.of("second backward") != nullptr);
  CHECK(retained.of("second backward")->cost_ns == 2000 * kUs);
  const Said metrics = advice([&](Program& p, uint32_t s) {
    forward(p, s, 200);
    backward(p, "backward", s);
    p.in(SpanKind::kModule, "nn.Module: Net_0", [&] {
      for (int i = 0; i < 10; ++i) p.op("aten::linear", 200, {t({32, 64}), t({64, 64})});
    });
  });
  REQUIRE(metrics.of("second forward") != nullptr);
  CHECK(metrics.of("second forward")->cost_ns == 2000 * kUs);
}

TEST_CASE("attention by hand is told with its backward; a softmax over classes is none") {
  const auto with = [](int64_t rows, int64_t columns) {
    return advice([&](Program& p, uint32_t s) {
      p.in(SpanKind::kModule, "nn.Module: Attention_0", [&] {
        p.function("forward", [&] {
          p.op("aten::matmul", 600, {t({2, 4, rows, 8}), t({2, 4, 8, columns})}, s);
          p.op("aten::div", 200, {t({2, 4, rows, columns})}, s + 1);
          p.op("aten::softmax", 300, {t({2, 4, rows, columns})}, s + 2);
          p.op("aten::matmul", 600, {t({2, 4, rows, columns}), t({2, 4, columns, 8})}, s + 3);
        });
      });
      p.pass("backward", [&] {
        for (uint32_t i = 4; i-- > 0;) p.node("BmmBackward0", "aten::bmm", 500, s + i);
      });
    });
  };
  const Said said = with(200, 200);
  const Finding* f = said.of("attention");
  REQUIRE(f != nullptr);
  CHECK(f->todo.find("scaled_dot_product_attention") != std::string::npos);
  CHECK(f->where == "train.py(17): forward");
  CHECK(f->cost_ns > 1'500 * kUs);  // of 3.7 ms
  CHECK(f->cost_ns < 3'700 * kUs);
  CHECK(with(8, 8).of("attention") == nullptr);
  CHECK(with(100, 100).of("attention") == nullptr);
  CHECK(advice([](Program& p, uint32_t) {
          p.op("aten::matmul", 600, {t({4, 64, 32}), t({32, 100})});
          p.op("aten::softmax", 3000, {t({4, 64, 100})});
        }).findings.empty());
}

TEST_CASE("a backward that goes on behind the last gradient that is taken, unless something may take more") {
  struct Net {
    std::vector<int64_t> us{};     // of each layer's node
    std::vector<bool> is_taken{};  // by the optimizer
    size_t optimizers = 1;
    std::function<void(Program&)> also = [](Program&) {};
    bool has_hook = false, has_left_out = false;
  };
  const auto shape = [](size_t layer) { return std::vector<int64_t>{64, static_cast<int64_t>(10 + layer)}; };
  const auto with = [&](const Net& net) {
    return advice([&](Program& p, uint32_t s) {
      if (s == 1)
        for (size_t i = 0; i < net.optimizers; ++i)
          p.timeline.states.push_back({.kind = StateKind::kOptimizer, .begin = 0, .end = 0});
      p.in(SpanKind::kModule, "nn.Module: Net_0", [&] {
        for (uint32_t i = 0; i < net.us.size(); ++i) p.op("aten::linear", 50, {t({32, 64}), t(shape(i))}, s + i);
      });
      p.pass("backward", [&] {
        for (size_t i = net.us.size(); i-- > 0;) {
          p.node("AddmmBackward0", "aten::mm", net.us[i], s + static_cast<uint32_t>(i));
          p.accumulate(shape(i));
        }
        if (net.has_hook)
          p.in(SpanKind::kOperator, "autograd::engine::evaluate_function: SumBackward0",
               [&] { p.function("on_gradient", [&] { p.now += kUs; }); });
      });
      net.also(p);
      p.in(SpanKind::kModule, "Optimizer: Adam_0", [&] {
        update(p, "Adam", [&] {
          for (size_t i = 0; i < net.us.size(); ++i)
            if (net.is_taken[i]) p.op("aten::addcdiv_", 5, {t(shape(i))});
          Input list{.kind = Input::Kind::kTensorList, .left_out = net.has_left_out ? 3U : 0U};
          p.op("aten::_foreach_add_", 5, {list});
        });
      });
    });
  };
  std::mt19937 random(5);
  const auto among = [&](uint32_t least, uint32_t most) { return least + random() % (most - least + 1); };
  for (int round = 0; round < 50; ++round) {
    Net net;
    for (size_t i = among(2, 12); i-- > 0;) {
      net.us.push_back(among(100, 700));
      net.is_taken.push_back(among(0, 2) == 0);
    }
    const auto first = std::ranges::find(net.is_taken, true) - net.is_taken.begin();
    int64_t us = 0;
    for (std::ptrdiff_t i = 0; i < first; ++i) us += net.us[static_cast<size_t>(i)] + 2;
    const Said said = with(net);
    const Finding* f = said.of("unused gradient");
    CAPTURE(round);
    if (first == static_cast<std::ptrdiff_t>(net.us.size()) ||
        us * 100 < 3 * kStepNs / kUs) {  // nothing is taken, or all
      CHECK(f == nullptr);
    } else {
      REQUIRE(f != nullptr);
      CHECK(f->cost_ns == us * kUs);
    }
  }
  const Net frozen{.us = {500, 500, 500, 500}, .is_taken = {false, false, false, true}};
  CHECK(with(frozen)
            .of("unused gradient")
            ->evidence.starts_with("It makes 3 gradients that nothing takes, the largest of them [64, 12]"));
  const auto changed = [&](const std::function<void(Net&)>& change) {
    Net net = frozen;
    change(net);
    return with(net).of("unused gradient") != nullptr;
  };
  CHECK(changed([](Net&) {}));
  CHECK_FALSE(changed([](Net& net) { net.optimizers = 2; }));
  CHECK_FALSE(changed([](Net& net) { net.has_hook = true; }));
  CHECK_FALSE(changed([](Net& net) { net.has_left_out = true; }));
  const auto after = [&](const std::function<void(Program&)>& also) {
    return changed([&](Net& net) { net.also = also; });
  };
  CHECK_FALSE(after([&](Program& p) { p.op("aten::norm", 5, {t(shape(0))}); }));  // of gradients
  CHECK_FALSE(after([](Program& p) { p.op("c10d::allreduce_", 5); }));
  CHECK_FALSE(after([](Program& p) { p.op("retain_grad", 5); }));
  CHECK(after([&](Program& p) {
    p.in(SpanKind::kPython, "torch/nn/modules/module.py(2600): zero_grad",
         [&] { p.op("aten::zero_", 5, {t(shape(0))}); });
  }));
}

TEST_CASE("dense gradients of a table of which few rows are used, unless a product needs them") {
  const auto with = [](int64_t rows, int64_t used, bool is_tied) {
    return advice([&](Program& p, uint32_t s) {
      p.op("aten::embedding", 20, {t({rows, 32}), t({used}, 4)}, s);
      if (is_tied) p.op("aten::linear", 1000, {t({used, 32}), t({rows, 32})}, s + 1);
      p.pass("backward", [&] {
        p.node("EmbeddingBackward0", "aten::embedding_dense_backward", 2000, s,
               {t({used, 32}), t({used}, 4), n(rows), n(-1), n(0)});
        p.accumulate({rows, 32}, 1000);
      });
      update(p, "SGD", [&] { p.op("aten::add_", 1000, {t({rows, 32}), t({rows, 32})}); });
    });
  };
  const Said said = with(40'000, 400, false);
  const Finding* f = said.of("dense gradient");
  REQUIRE(f != nullptr);
  CHECK(f->cost_ns == doctest::Approx(4'000 * kUs * 0.99));
  CHECK(f->todo.find("sparse=True") != std::string::npos);
  CHECK(with(40'000, 400, true).of("dense gradient") == nullptr);
  CHECK(with(40'000, 20'000, false).of("dense gradient") == nullptr);
  CHECK(with(1'000, 10, false).of("dense gradient") == nullptr);
}

TEST_CASE("what few steps do, however long, is told with its share of all steps and not of a typical one") {
  const auto unused = [](Program& p, uint32_t s) {
    p.op("aten::linear", 2000, {t({16, 50, 64}), t({900, 64}), t({900})}, s);
    p.op("aten::select", 3, {t({16, 50, 900}), n(1), n(-1)});
  };
  const auto dense = [](Program& p, uint32_t s) {
    p.op("aten::embedding", 20, {t({40'000, 32}), t({400}, 4)}, s);
    p.pass("backward", [&] {
      p.node("EmbeddingBackward0", "aten::embedding_dense_backward", 2000, s,
             {t({400, 32}), t({400}, 4), n(40'000), n(-1), n(0)});
    });
  };
  const auto tiny = [](Program& p, uint32_t) {
    update(p, "Adam", [&] {
      for (int i = 0; i < 200; ++i) p.op("aten::mul_", 10, {t({16}), t({16})});
    });
  };
  const std::pair<const char*, std::function<void(Program&, uint32_t)>> kinds[] = {
      {"unused positions", unused}, {"dense gradient", dense}, {"optimizer", tiny}};
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const auto& kind = kinds[round % 3];
    const std::string rule(kind.first);
    const size_t steps = 3 + random() % 40, few = 1 + random() % ((steps - 1) / 2), times = 1 + random() % 100;
    size_t step = 0;
    const Said said = advice(
        [&](Program& p, uint32_t s) {
          for (size_t i = 0; step < few && i < times; ++i) kind.second(p, s + static_cast<uint32_t>(i));
          ++step;
        },
        steps);
    CAPTURE(rule);
    CAPTURE(steps);
    CAPTURE(few);
    CAPTURE(times);
    const Finding* f = said.of(rule);
    const double all = 2'000.0 * kUs * static_cast<double>(few * times) / static_cast<double>(steps);
    if (f == nullptr) {
      CHECK(all < 0.05 * static_cast<double>(said.step_ns));  // too little to be told
      continue;
    }
    CHECK(f->is_rare);
    CHECK(static_cast<double>(f->cost_ns) < all * 1.05);
    CHECK(f->cost_ns < said.step_ns);
  }
}

TEST_CASE("a layer over all positions of which one is taken") {
  const auto with = [](Inputs taken, const char* name) {
    return advice([&](Program& p, uint32_t s) {
      p.op("aten::linear", 2000, {t({16, 50, 64}), t({900, 64}), t({900})}, s);
      p.op("aten::slice", 3, {t({16, 50, 900}), n(0), n(0), n(INT64_MAX), n(1)});
      p.op(name, 3, taken);
      p.pass("backward", [&] { p.node("AddmmBackward0", "aten::mm", 2000, s); });
    });
  };
  const Said said = with({t({16, 50, 900}), n(1), n(-1)}, "aten::select");
  REQUIRE(said.of("unused positions") != nullptr);
  CHECK(said.of("unused positions")->cost_ns == doctest::Approx(4'000 * kUs * 0.98));
  CHECK(with({t({16, 50, 900}), n(1), n(-1), n(INT64_MAX), n(1)}, "aten::slice").of("unused positions") != nullptr);
  CHECK(with({t({16, 50, 900}), n(1), n(0), n(-1), n(1)}, "aten::slice").of("unused positions") == nullptr);
  CHECK(with({t({16, 50, 900}), n(-1)}, "aten::log_softmax").of("unused positions") == nullptr);
}

TEST_CASE("a model that is called for one row after the other is told without a cost") {
  const auto with = [](int calls, int64_t us, Inputs inputs, const char* name = "aten::linear") {
    return advice([&](Program& p, uint32_t) {
      for (int i = 0; i < calls; ++i)
        p.in(SpanKind::kModule, "nn.Module: Net_0",
             [&] { p.in(SpanKind::kModule, "nn.Module: Linear_0", [&] { p.op(name, us, inputs); }); });
    });
  };
  const auto layer = [](int64_t rows, int64_t size) { return Inputs{t({rows, size}), t({size, size}), t({size})}; };
  const Said said = with(40, 200, layer(1, 64));
  const Finding* f = said.of("batch of one");
  REQUIRE(f != nullptr);
  CHECK(f->what == "Net_0 is called 40 times in a step, each time for one row.");
  CHECK(f->evidence.find("The calls take 8.00 ms; one call for as many rows would take about 208 us") != f->what.npos);
  CHECK(f->cost_ns == 0);
  CHECK(said.findings.size() == 1);
  CHECK(with(40, 200, {t({64}), t({64, 64}), t({64})}).of("batch of one") != nullptr);
  CHECK(with(40, 200, {t({64}), t({1, 64}), t({64, 64})}, "aten::addmm").of("batch of one") != nullptr);
  CHECK(with(40, 200, layer(2, 64)).of("batch of one") == nullptr);
  CHECK(with(40, 200, {t({2, 1, 64}), t({64, 64}), t({64})}).of("batch of one") == nullptr);
  CHECK(with(5, 2000, layer(1, 64)).of("batch of one") == nullptr);    // few calls
  CHECK(with(40, 20, layer(1, 64)).of("batch of one") == nullptr);     // little of the step
  CHECK(with(40, 200, layer(1, 4096)).of("batch of one") == nullptr);  // their arithmetic takes as long in one call
  CHECK(with(40, 200, {t({1, 3, 64, 64}), t({8, 3, 3, 3})}, "aten::conv2d").of("batch of one") == nullptr);
}

TEST_CASE("parts of a tensor that are taken one by one, each with a backward of the whole") {
  const auto with = [](const char* function, const std::function<int64_t(int)>& at, bool has_backward = true) {
    return advice([&](Program& p, uint32_t s) {
      p.in(SpanKind::kPython, function, [&] {
        for (int i = 0; i < 50; ++i)
          p.op("aten::select", 1, {t({16, 50, 64}), n(1), n(at(i))}, s + static_cast<uint32_t>(i));
      });
      if (has_backward)
        p.pass("backward", [&] {
          for (int i = 49; i >= 0; --i)
            p.node("SelectBackward0", "aten::select_backward", 60, s + static_cast<uint32_t>(i));
        });
    });
  };
  const char *const own = "train.py(9): forward", *const of_torch = "torch/nn/functional.py(5000): attend";
  const Said said = with(own, [](int i) { return i; });
  const Finding* f = said.of("part by part");
  REQUIRE(f != nullptr);
  CHECK(f->cost_ns > 2'800 * kUs);
  CHECK(f->cost_ns < 3'000 * kUs);  // a tensor is still written, once
  CHECK(f->where == own);
  CHECK(f->todo.find("x.unbind(1)") != f->todo.npos);
  CHECK(with(own, [](int i) { return i - 50; }).of("part by part") != nullptr);
  // Three parts of each of many tensors; the same part of 50 tensors; what torch does itself; no gradient.
  CHECK(with(own, [](int i) { return i % 3; }).of("part by part") != nullptr);
  CHECK(with(own, [](int) { return -1; }).of("part by part") == nullptr);
  CHECK(with(of_torch, [](int i) { return i; }).of("part by part") == nullptr);
  CHECK(with(
            own, [](int i) { return i; }, false)
            .of("part by part") == nullptr);
}

TEST_CASE("a product with one_hot() that looks rows up") {
  const auto with = [](const char* name, std::vector<int64_t> factor) {
    return advice([&](Program& p, uint32_t s) {
      p.function("look", [&] {
        p.op("aten::one_hot", 300, {t({32, 20}, 4), n(6000)});
        p.op("aten::to", 500, {t({32, 20, 6000}, 4), n(6)});
        p.op(name, 2000, {t(factor), t({6000, 16})}, s);
      });
      p.pass("backward", [&] { p.node("MmBackward0", "aten::mm", 2000, s); });
    });
  };
  const Said said = with("aten::matmul", {32, 20, 6000});
  const Finding* f = said.of("one-hot product");
  REQUIRE(f != nullptr);
  CHECK(f->cost_ns > 4'500 * kUs);
  CHECK(f->cost_ns < 4'800 * kUs);  // an embedding takes some, too
  CHECK(f->where == "train.py(14): look");
  CHECK(said.of("operator") == nullptr);
  CHECK(with("aten::mul", {32, 20, 6000}).of("one-hot product") == nullptr);     // as in a loss
  CHECK(with("aten::matmul", {32, 6000, 20}).of("one-hot product") == nullptr);  // sums of rows
}

TEST_CASE("operators in float64 cost half of their time") {
  const auto with = [](uint8_t type) {
    return advice([&](Program& p, uint32_t) {
      p.op("aten::mul", 4000, {t({512, 512}, type), t({512, 512}, type)});
      p.pass("backward", [&] { p.accumulate({16, 16}); });
    });
  };
  const Said said = with(kF64);
  REQUIRE(said.of("float64") != nullptr);
  CHECK(said.of("float64")->cost_ns == 2000 * kUs);
  CHECK(said.of("float64")->where == "train.py(14): main");
  CHECK(with(kF32).findings.empty());
}

TEST_CASE(
    "what is no part of a network's arithmetic is told by its place, with its backward, from an eighth of a step on") {
  const auto with = [](int64_t us, bool has_backward) {
    return advice([&](Program& p, uint32_t s) {
      p.function("whiten", [&] { p.op("aten::linalg_eigh", us, {t({160, 160})}, s); });
      p.op("aten::mm", 3000, {t({160, 160}), t({160, 160})}, s + 1);
      if (has_backward) p.pass("backward", [&] { p.node("LinalgEighBackward0", "aten::matmul", us, s); });
    });
  };
  const Said said = with(2000, true);
  const Finding* f = said.of("operator");
  REQUIRE(f != nullptr);
  CHECK(f->what.find("aten::linalg_eigh of [160, 160] takes {}") == 0);
  CHECK(f->where == "train.py(16): whiten");
  CHECK(f->cost_ns == 4000 * kUs);
  CHECK(with(2000, false).of("operator")->todo.find("before the steps") != std::string::npos);
  CHECK(with(500, false).findings.empty());
}

TEST_CASE("time that a few of many operators take alone is a stall of their thread") {
  const auto with = [](int64_t longest_us, bool in_each_step) {
    uint32_t calls = 0;
    return advice([&](Program& p, uint32_t) {
      const bool is_held_up = in_each_step || calls++ == 2;
      for (int i = 0; i < 40; ++i) p.op("aten::zeros_like", i == 20 && is_held_up ? longest_us : 5, {t({16, 16})});
      p.op("aten::mm", 500, {t({160, 160}), t({160, 160})});
    });
  };
  CHECK(with(9000, false).of("operator") == nullptr);
  CHECK(with(9000, true).of("operator") != nullptr);  // a larger one among smaller ones
}

TEST_CASE("what is long where the whole step is long is no large share of a step") {
  const auto with = [](std::vector<std::pair<int64_t, int64_t>> steps) {  // us: of the operator, of all
    size_t step = 0;
    return advice(
        [&](Program& p, uint32_t) {
          const auto [us, all_us] = steps[step++];
          p.op("aten::linalg_eigh", us, {t({160, 160})});
          p.op("aten::mm", all_us - us, {t({160, 160}), t({160, 160})});
        },
        steps.size());
  };
  // The median operator takes 30 % of the median step; of its own step it does once.
  CHECK(with({{3000, 40'000}, {3000, 40'000}, {3000, 10'000}, {100, 10'000}, {100, 10'000}}).findings.empty());
  CHECK(with({{9000, 40'000}, {9000, 40'000}, {3000, 10'000}, {100, 10'000}, {100, 10'000}}).of("operator") != nullptr);
}

TEST_CASE("names of operators are known by what they do") {
  CHECK(kind_of_operator("aten::_to_copy") == OperatorKind::kMoves);
  CHECK(kind_of_operator("aten::addmm") == OperatorKind::kProduct);
  CHECK(kind_of_operator("aten::relu_") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("aten::_scaled_dot_product_flash_attention_for_cpu") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("aten::cross_entropy_loss") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("aten::linalg_svd") == OperatorKind::kLinalg);
  CHECK(kind_of_operator("aten::linalg_vector_norm") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("aten::_local_scalar_dense") == OperatorKind::kReads);
  CHECK(kind_of_operator("torchvision::nms") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("aten::nobody_knows_this") == OperatorKind::kOther);
  CHECK(kind_of_operator("Torch-Compiled Region: 0/1") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("MyFunction") == OperatorKind::kNetwork);
  CHECK(kind_of_operator("") == OperatorKind::kNetwork);
}

TEST_CASE("what torch.compile has written is no file of the program") {
  CHECK_FALSE(is_program_file("/tmp/torchinductor_me/xf/cxfqk.py"));
  CHECK_FALSE(is_program_text("/tmp/torchinductor_me/xf...le.py(1963): call"));
  CHECK(is_program_file("/home/me/torchinductor/train.py"));
}

TEST_CASE("whatever ran, findings together cost no more than a step, and claim no span outside of steps") {
  const std::vector<std::string> names = {"aten::mm",         "aten::softmax", "aten::matmul",    "aten::copy_",
                                          "aten::isnan",      "aten::item",    "aten::select",    "aten::linear",
                                          "aten::linalg_svd", "aten::mul_",    "aten::embedding", "aten::norm",
                                          "aten::slice",      "aten::any",     "aten::sort",      "aten::one_hot"};
  const std::vector<std::string> functions = {"train.py(3): a",
                                              "torch/optim/adam.py(1): step",
                                              "torch/_tensor_str.py(1): _str",
                                              "torch/autograd/__init__.py(2): backward",
                                              "torch/autograd/__init__.py(2): grad",
                                              "lib/python3.11/copy.py(3): deepcopy"};
  std::mt19937 random(35);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 150; ++round) {
    Program p;
    p.timeline.states.push_back({.kind = StateKind::kOptimizer, .begin = 0, .end = 0});
    for (size_t step = 0; step < 3; ++step) {
      const int64_t begin = p.now;
      size_t depth = 0;
      for (int i = 0; i < 120; ++i) {
        const size_t what = below(10);
        const auto size = [&] { return static_cast<int64_t>(below(3) == 0 ? 400 : below(70)); };
        Inputs inputs;
        for (size_t k = below(5); k-- > 0;)
          inputs.push_back(below(4) == 0   ? n(static_cast<int64_t>(below(50'000)) - 2)
                           : below(2) == 0 ? t({size(), size(), size()}, static_cast<uint8_t>(6 + below(2)))
                                           : t({size(), size()}));
        if (what < 5 || depth > 6) {
          p.op(names[below(names.size())], static_cast<int64_t>(below(40)), inputs, static_cast<uint32_t>(below(60)));
        } else if (what == 5) {
          p.begin(SpanKind::kPython, functions[below(functions.size())]), ++depth;
        } else if (what == 6 && below(3) == 0) {
          p.accumulate({size(), size()});
        } else if (what == 6) {
          p.begin(SpanKind::kOperator, "autograd::engine::evaluate_function: EmbeddingBackward0"), ++depth;
          p.op("aten::embedding_dense_backward", 9, inputs, static_cast<uint32_t>(below(60)));
        } else if (what == 7) {
          p.begin(below(2) ? SpanKind::kModule : SpanKind::kAnnotation, below(3) == 0 ? "nn.Module: A_0"
                                                                        : below(2)    ? "Optimizer: SGD_0"
                                                                                      : "Optimizer.step#SGD.step");
          ++depth;
        } else if (depth > 0) {
          p.end(), --depth;
        }
        p.now += static_cast<int64_t>(below(9)) * kUs;
      }
      while (depth-- > 0) p.end();
      p.now += kUs;
      if (step != 1) p.timeline.steps.push_back({begin, p.now, step});
    }
    const Said said = look_at(p.timeline);
    int64_t all = 0;
    for (const Finding& f : said.findings) {
      CHECK(f.cost_ns > 0);
      CHECK(f.is_on_thread);
      all += f.cost_ns;
    }
    CHECK(all <= said.step_ns);
  }
}

}  // namespace operator_advice_test
