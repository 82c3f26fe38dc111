// What the shapes of a step's operators tell of the samples or tokens that it works on (formats/timeline/step_input.h).
#include "formats/timeline/step_input.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace step_input_test {

using namespace torchprof::formats;

namespace {

Input t(std::vector<int64_t> sizes) {
  Input input{.kind = Input::Kind::kTensor};
  input.tensors.push_back({.is_readable = true, .type = 6, .sizes = std::move(sizes)});
  return input;
}
Input n(int64_t value) { return {.kind = Input::Kind::kScalar, .text = std::to_string(value), .integers = {value}}; }

class Program {
 public:
  Program() { timeline.rows.resize(1); }

  void span(SpanKind kind, const std::string& name, const std::function<void()>& body) {
    const size_t at = timeline.rows[0].spans.size();
    timeline.rows[0].spans.push_back({.begin = ++now_, .end = 0, .name = timeline.name(name), .kind = kind});
    body();
    timeline.rows[0].spans[at].end = ++now_;
  }
  void model(const std::string& name, const std::function<void()>& body) {
    span(SpanKind::kModule, "nn.Module: " + name + "_0", body);
  }
  void op(const std::string& name, std::vector<Input> inputs, bool has_gradients = true, bool is_backward = false) {
    ++now_;
    timeline.rows[0].spans.push_back({.begin = now_,
                                      .end = now_ + 1,
                                      .name = timeline.name(name),
                                      .inputs = timeline.add_inputs(std::move(inputs)),
                                      .sequence = has_gradients ? 7U : 0U,
                                      .kind = SpanKind::kOperator,
                                      .is_backward = is_backward});
    ++now_;
  }
  void backward() {
    span(SpanKind::kPython, "torch/_tensor.py(500): backward", [this] {
      span(SpanKind::kPython, "torch/autograd/__init__.py(200): backward",
           [this] { op("autograd::engine::evaluate_function: MmBackward0", {}, true, true); });
    });
  }
  void step(const std::function<void()>& body) {
    const int64_t begin = ++now_;
    body();
    timeline.steps.push_back({begin, ++now_, timeline.steps.size()});
  }

  Timeline timeline;

 private:
  int64_t now_ = 0;
};

// Of a program of ten such steps.
StepInput input_of(const std::function<void(Program&, size_t step)>& body) {
  Program p;
  for (size_t i = 0; i < 10; ++i) p.step([&] { body(p, i); });
  p.timeline.finish();
  return step_input_of(p.timeline, 0, p.timeline.steps);
}

void convolve(Program& p, int64_t samples, bool has_gradients = true) {
  p.model("Net", [&] {
    p.model("Conv2d", [&] { p.op("aten::conv2d", {t({samples, 3, 8, 8}), t({4, 3, 3, 3})}, has_gradients); });
    p.model("Conv2d", [&] { p.op("aten::conv2d", {t({samples * 2, 4, 8, 8}), t({4, 4, 3, 3})}, has_gradients); });
  });
}
void read_text(Program& p, int64_t rows, int64_t length) {
  p.model("GPT", [&] {
    p.op("aten::embedding", {t({500, 32}), t({rows, length})});
    p.op("aten::embedding", {t({500, 32}), t({1, length})});
    p.op("aten::scaled_dot_product_attention", {});
  });
}

}  // namespace

TEST_CASE("a model that begins with a convolution works on samples, one that begins with an embedding on tokens") {
  const StepInput images = input_of([](Program& p, size_t) {
    convolve(p, 64);
    p.model("Loss", [&] { p.op("aten::nll_loss", {t({64, 10})}); });
    p.backward();
  });
  CHECK(images.samples == 64);
  CHECK(images.tokens == 0);
  const StepInput text = input_of([](Program& p, size_t step) {
    read_text(p, 8, step == 9 ? 3 : 100);  // the last batch of an epoch
    p.backward();
  });
  CHECK(text.tokens == 800);
  CHECK(text.samples == 0);
  CHECK(input_of([](Program& p, size_t) { convolve(p, 16, false); }).samples == 16);  // inference
}

TEST_CASE("gradients that are accumulated count, an evaluation does not") {
  const StepInput accumulated = input_of([](Program& p, size_t) {
    for (int i = 0; i < 4; ++i) {
      read_text(p, 2, 50);
      p.backward();
    }
  });
  CHECK(accumulated.tokens == 400);
  const StepInput evaluated = input_of([](Program& p, size_t step) {
    convolve(p, 32);
    p.backward();
    if (step % 2 == 0) convolve(p, 500, false);
  });
  CHECK(evaluated.samples == 32);
}

TEST_CASE("where it is not certain nothing is said") {
  const auto is_unknown = [](const std::function<void(Program&)>& body) {
    const StepInput input = input_of([&](Program& p, size_t) { body(p), p.backward(); });
    return input.samples == 0 && input.tokens == 0;
  };
  CHECK(is_unknown([](Program& p) { convolve(p, 64), convolve(p, 64); }));  // both before one backward
  CHECK(is_unknown([](Program& p) {                                         // two models
    convolve(p, 64);
    p.model("Generator", [&] { p.op("aten::conv2d", {t({64, 3, 8, 8}), t({4, 3, 3, 3})}); });
  }));
  CHECK(is_unknown([](Program& p) {  // no batch
    p.model("Net", [&] { p.op("aten::conv2d", {t({3, 8, 8}), t({4, 3, 3, 3})}); });
  }));
  CHECK(is_unknown([](Program& p) {  // categories, not words
    p.model("Net", [&] { p.op("aten::embedding", {t({500, 32}), t({64, 26})}); });
  }));
  CHECK(is_unknown([](Program& p) {  // of what the model begins with nothing is known
    p.model("Net", [&] {
      p.op("aten::embedding", {});
      p.op("aten::embedding", {t({500, 32}), t({1, 9})});
      p.op("aten::softmax", {});
    });
  }));
  CHECK(is_unknown([](Program& p) { p.op("aten::conv2d", {t({64, 3, 8, 8}), t({4, 3, 3, 3})}); }));  // no model
  // Steps that are not alike.
  const StepInput mixed = input_of([](Program& p, size_t step) {
    if (step % 2 == 0)
      convolve(p, 64);
    else
      read_text(p, 8, 100);
    p.backward();
  });
  CHECK(mixed.samples == 0);
  CHECK(mixed.tokens == 0);
  Program few;
  few.step([&] { convolve(few, 64); });
  few.timeline.finish();
  CHECK(step_input_of(few.timeline, 0, few.timeline.steps).samples == 0);
}

TEST_CASE("of ranks it is known where it is of all") {
  CHECK(mean_of({{10, 0}, {30, 0}}).samples == 20);
  CHECK(mean_of({{10, 0}, {0, 0}}).samples == 0);
  CHECK(mean_of({{0, 7}}).tokens == 7);
  CHECK(mean_of({}).tokens == 0);
}

TEST_CASE("shapes stay known where a program gives its operators ever other numbers") {
  Timeline timeline;
  std::vector<uint32_t> numbers;
  for (int64_t i = 0; i < 40'000; ++i) numbers.push_back(timeline.add_inputs({t({400}), n(0), n(i)}));
  CHECK(timeline.inputs(numbers[100])[2].integers == std::vector<int64_t>{100});
  const std::vector<Input>& last = timeline.inputs(numbers.back());
  REQUIRE(last.size() == 3);
  CHECK(last[0].tensors.at(0).sizes == std::vector<int64_t>{400});
  CHECK(last[2].integers.empty());
  CHECK(last[2].text.empty());
  CHECK(numbers.back() == numbers[30'000]);
  // What comes then is known by its sizes, too, as long as there is room.
  const uint32_t other = timeline.add_inputs({t({8, 64})});
  CHECK(timeline.inputs(other).at(0).tensors.at(0).sizes == std::vector<int64_t>{8, 64});
  CHECK(timeline.add_inputs({t({8, 64})}) == other);
  for (int64_t i = 0; i < 40'000; ++i) numbers.push_back(timeline.add_inputs({t({i + 1'000})}));
  CHECK(numbers.back() == 0);
  CHECK(timeline.add_inputs({t({400}), n(0), n(5)}) == numbers[30'000]);
}

}  // namespace step_input_test
