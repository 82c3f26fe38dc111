#include "formats/timeline/step_input.h"

#include <algorithm>
#include <string_view>

#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/timeline/unit_names.h"
#include "formats/trace/name_role.h"

namespace torchprof::formats {
namespace {

constexpr size_t kFewestSteps = 3;

class StepInputs {
 public:
  StepInputs(const Timeline& timeline, uint32_t row, const std::vector<StepSpan>& steps)
      : t_(timeline), spans_(timeline.rows[row].spans), steps_(steps), seen_(steps.size()) {}

  StepInput run() {
    trains_ = std::ranges::any_of(t_.rows, [](const TimelineRow& row) {  // of a GPU's another thread goes backward
      return std::ranges::any_of(row.spans, &TimelineSpan::is_backward);
    });
    look();
    std::vector<int64_t> samples, tokens;
    for (const Seen& seen : seen_) {
      const bool is_one_model = seen.models == 1 && seen.calls == std::max<size_t>(1, seen.passes);
      if (!is_one_model || (seen.counted.samples != 0 && seen.counted.tokens != 0)) continue;
      if (seen.counted.samples != 0) samples.push_back(seen.counted.samples);
      if (seen.counted.tokens != 0) tokens.push_back(seen.counted.tokens);
    }
    const auto typical = [this](std::vector<int64_t>& of) {
      const bool is_enough = of.size() >= kFewestSteps && of.size() * 10 >= steps_.size() * 9;
      return is_enough ? median_of(std::move(of)) : 0;
    };
    return {typical(samples), typical(tokens)};
  }

 private:
  struct Seen {  // in a step
    size_t calls = 0, models = 0, passes = 0;
    uint32_t model = 0;  // the last one, as a name
    StepInput counted{};
  };

  // Calls of a model lie one after the other or inside of each other: what is inside of one is looked at with it.
  void look() {
    size_t step = 0;
    for (size_t i = 0; i < spans_.size();) {
      const TimelineSpan& s = spans_[i];
      while (step < steps_.size() && steps_[step].end <= s.begin) ++step;
      if (step == steps_.size()) return;
      const bool is_inside = s.begin >= steps_[step].begin;
      seen_[step].passes += is_inside && is_pass(s);
      if (s.kind != SpanKind::kModule || t_.role(s.name) != NameRole::kModule) {
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (end < spans_.size() && spans_[end].begin < s.end) ++end;
      if (is_inside) add_call(i, end, seen_[step]);
      i = end;
    }
  }

  // A call of backward(), not the one that it calls.
  bool is_pass(const TimelineSpan& s) const {
    const auto is_call = [this](const TimelineSpan& of) {
      return of.kind == SpanKind::kPython && is_backward_call(t_.text(of.name));
    };
    return is_call(s) && (s.parent == kNoSpan || !is_call(spans_[s.parent]));
  }

  void add_call(size_t from, size_t to, Seen& seen) const {
    StepInput counted;
    bool has_gradients = false, is_sequence = false, is_counted = false;
    for (size_t i = from + 1; i < to; ++i) {
      const TimelineSpan& s = spans_[i];
      if (s.kind != SpanKind::kOperator) continue;
      const std::string_view name = t_.text(s.name);
      has_gradients = has_gradients || s.sequence != 0;
      is_sequence = is_sequence || works_on_sequences(name);
      if (is_counted || (!is_convolution(name) && name != "aten::embedding")) continue;
      counted = counted_by(name, t_.inputs(s.inputs));
      is_counted = true;
    }
    if (!is_sequence || !trains_) counted.tokens = 0;
    if ((counted.samples == 0 && counted.tokens == 0) || (trains_ && !has_gradients)) return;
    const uint32_t model = spans_[from].name;
    if (seen.calls == 0 || seen.model != model) ++seen.models;
    seen.model = model;
    ++seen.calls;
    seen.counted.samples += counted.samples;
    seen.counted.tokens += counted.tokens;
  }

  static bool works_on_sequences(std::string_view name) {
    for (const std::string_view begin : {"aten::scaled_dot_product_", "aten::softmax", "aten::_softmax", "aten::lstm",
                                         "aten::gru", "aten::rnn_", "aten::_native_multi_head_attention"})
      if (name.starts_with(begin)) return true;
    return false;
  }

  static bool is_convolution(std::string_view name) {
    return name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d" || name == "aten::convolution";
  }

  // By the operator with which a model begins.
  static StepInput counted_by(std::string_view name, const std::vector<Input>& inputs) {
    const auto sizes_of = [&inputs](size_t number) -> const std::vector<int64_t>* {
      if (number >= inputs.size() || inputs[number].kind != Input::Kind::kTensor || inputs[number].tensors.empty())
        return nullptr;
      const Tensor& tensor = inputs[number].tensors[0];
      return tensor.is_readable ? &tensor.sizes : nullptr;
    };
    const std::vector<int64_t>*first = sizes_of(0), *second = sizes_of(1);
    if (first == nullptr || second == nullptr) return {};
    // Of more than these many nobody has trained in a step; sums of them fit.
    const auto bounded = [](double n) { return n >= 1 && n < 1e12 ? static_cast<int64_t>(n) : 0; };
    if (is_convolution(name))
      return {first->size() >= 3 && first->size() == second->size() ? bounded(static_cast<double>((*first)[0])) : 0, 0};
    if (second->size() != 2) return {};
    return {0, bounded(static_cast<double>((*second)[0]) * static_cast<double>((*second)[1]))};
  }

  const Timeline& t_;
  const std::vector<TimelineSpan>& spans_;
  const std::vector<StepSpan>& steps_;
  std::vector<Seen> seen_;
  bool trains_ = false;
};

}  // namespace

StepInput step_input_of(const Timeline& timeline, uint32_t row, const std::vector<StepSpan>& steps) {
  return StepInputs(timeline, row, steps).run();
}

StepInput mean_of(const std::vector<StepInput>& ranks) {
  const auto mean = [&ranks](int64_t StepInput::*of) {
    int64_t all = 0;
    for (const StepInput& each : ranks) {
      if (each.*of == 0) return int64_t{0};
      add_to(all, each.*of);
    }
    return ranks.empty() ? 0 : all / static_cast<int64_t>(ranks.size());
  };
  return {mean(&StepInput::samples), mean(&StepInput::tokens)};
}

}  // namespace torchprof::formats
