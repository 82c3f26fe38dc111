// What of a step is the optimizer's, where step() calls a closure that computes the loss.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/analysis/step_parts.h"

namespace step_parts_test {

using namespace torchprof::formats;

TEST_CASE("the optimizer's part has no modules and no backward in it, and the parts add up to the step") {
  using Kind = StepPartsCollector::Kind;
  std::mt19937 random(13);
  for (int round = 0; round < 200; ++round) {
    StepPartsCollector parts;
    std::vector<StepSpan> steps;
    int64_t optimizer = 0, compute = 0, now = 0;
    const auto add = [&](Kind kind, uint32_t name, int64_t begin, int64_t end, bool is_in_operator,
                         std::string_view text) {
      parts.add({kind, 0, name, begin, end, false, is_in_operator}, text);
    };
    for (uint64_t step = 0; step < 3; ++step) {
      const int64_t begin = now;
      const auto some = [&] { return static_cast<int64_t>(1 + random() % 1000); };
      now += some();
      const int64_t optimizer_begin = now;
      int64_t inner = 0;
      for (uint64_t pass = random() % 4; pass > 0; --pass) {
        now += some();
        // A module with an operator, then backward: all of it is work of the network.
        const int64_t module = now, op = now + some(), op_end = op + some();
        now = op_end + some();
        add(Kind::kOperator, 1, op, op_end, false, "aten::mm");
        add(Kind::kPython, 2, module, now, false, "nn.Module: Net_0");
        const int64_t backward = now + some();
        inner += now - module;
        compute += op_end - op;
        now = backward + some();
        add(Kind::kPython, 3, backward, now, false, "torch/autograd/graph.py(800): _engine_run_backward");
        inner += now - backward;
        compute += now - backward;
      }
      const int64_t update = now + some(), updated = update + some();
      add(Kind::kOperator, 4, update, updated, false, "aten::add_");
      now = updated + some();
      add(Kind::kAnnotation, 5, optimizer_begin, now, false, "Optimizer.step#Adam.step");
      optimizer += now - optimizer_begin - inner;
      now += some();
      steps.push_back({begin, now, step});
    }
    parts.add({Kind::kPython, 0, 6, 0, now, true, false}, "train.py(1): <module>");
    PartTimes sum;
    for (const StepParts& each : parts.finish(steps)) {
      CHECK(each.ns.sum() == each.step.end - each.step.begin);
      sum += each.ns;
    }
    CHECK(sum[StepPart::kOptimizer] == optimizer);
    CHECK(sum[StepPart::kCompute] == compute);
  }
}

}  // namespace step_parts_test
