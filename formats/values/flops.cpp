#include "formats/values/flops.h"

#include <algorithm>
#include <array>

#include "formats/io/pair_key.h"

namespace torchprof::formats {
namespace {

using Inputs = std::vector<Input>;
using Sizes = std::vector<int64_t>;

// A product that becomes 0 if it overflows 64 bits or one of its factors is not known.
class Product {
 public:
  Product& times(int64_t factor) {
    if (factor <= 0 || __builtin_mul_overflow(value_, static_cast<uint64_t>(factor), &value_)) value_ = 0;
    return *this;
  }
  Product& times(const Sizes& sizes, size_t from = 0) {
    for (size_t i = from; i < sizes.size(); ++i) times(sizes[i]);
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1;
};

// nullptr: this input is no tensor, or its sizes could not be read.
const Sizes* sizes_of(const Inputs& inputs, size_t i) {
  if (i >= inputs.size() || inputs[i].kind != Input::Kind::kTensor || inputs[i].tensors.empty()) return nullptr;
  return inputs[i].tensors[0].is_readable ? &inputs[i].tensors[0].sizes : nullptr;
}

// The value for one of several dimensions; a list with one value stands for all of them.
int64_t value_at(const Inputs& inputs, size_t i, size_t dimension, int64_t otherwise) {
  if (i >= inputs.size() || inputs[i].integers.empty()) return otherwise;
  const auto& values = inputs[i].integers;
  return values[std::min(dimension, values.size() - 1)];
}

// [n, k] x [k, m], the first matrix at input `at`.
uint64_t matrix_product(const Inputs& inputs, size_t at) {
  const Sizes *a = sizes_of(inputs, at), *b = sizes_of(inputs, at + 1);
  if (!a || !b || a->size() != 2 || b->size() != 2) return 0;
  return Product().times(2).times(*a).times((*b)[1]).value();
}

// [batch, n, k] x [batch, k, m]
uint64_t batched_product(const Inputs& inputs, size_t at) {
  const Sizes *a = sizes_of(inputs, at), *b = sizes_of(inputs, at + 1);
  if (!a || !b || a->size() != 3 || b->size() != 3) return 0;
  return Product().times(2).times(*a).times((*b)[2]).value();
}

// As torch counts: the number of elements of the first input.
uint64_t elements(const Inputs& inputs, size_t at) {
  const Sizes* sizes = sizes_of(inputs, at);
  return sizes ? Product().times(*sizes).value() : 0;
}

// [..., k] x [m, k]: one product for each element of the input and each output feature.
uint64_t linear(const Inputs& inputs, size_t) {
  const Sizes *input = sizes_of(inputs, 0), *weight = sizes_of(inputs, 1);
  if (!input || !weight || weight->empty()) return 0;
  return Product().times(2).times(*input).times(weight->size() > 1 ? (*weight)[0] : 1).value();
}

// One window at each place of the output (transposed: of the input), each a product of kernel, channels in and channels
// out. The input is [batch, in, places...] or [in, places...]. The weight is [out, in / groups, kernel...], transposed
// [in, out / groups, kernel...]; the product of its sizes is kernel * in * out / groups either way.
struct Convolution {
  size_t stride, padding, dilation;  // indices of the inputs
};

uint64_t convolve(const Inputs& inputs, const Convolution& c, bool is_transposed) {
  const Sizes *input = sizes_of(inputs, 0), *weight = sizes_of(inputs, 1);
  if (!input || !weight || weight->size() < 3) return 0;
  const size_t places = weight->size() - 2;
  const bool has_batch = input->size() == weight->size();
  if (!has_batch && input->size() + 1 != weight->size()) return 0;
  Product flops;
  flops.times(2).times(has_batch ? (*input)[0] : 1).times(*weight);
  const std::string_view mode = c.padding < inputs.size() ? std::string_view(inputs[c.padding].word) : "";
  for (size_t i = 0; i < places; ++i) {
    const int64_t size = (*input)[input->size() - places + i];
    const int64_t stride = value_at(inputs, c.stride, i, 1);
    if (is_transposed) {
      flops.times(size);
      continue;
    }
    if (stride <= 0) return 0;
    const int64_t window = value_at(inputs, c.dilation, i, 1) * ((*weight)[i + 2] - 1) + 1;
    const int64_t padding = mode == "same" ? window - 1 : 2 * value_at(inputs, c.padding, i, 0);
    const int64_t rest = size + padding - window;
    flops.times(rest < 0 ? 0 : rest / stride + 1);
  }
  return flops.value();
}

// conv1d, conv2d, conv3d(input, weight, bias, stride, padding, dilation, groups); padding may be "same" or "valid".
uint64_t convolution(const Inputs& inputs, size_t) { return convolve(inputs, {3, 4, 5}, false); }
// conv_transpose1d ...(input, weight, bias, stride, padding, output_padding, groups, dilation)
uint64_t transposed(const Inputs& inputs, size_t) { return convolve(inputs, {3, 4, 7}, true); }
// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
uint64_t any_convolution(const Inputs& inputs, size_t) {
  return convolve(inputs, {3, 4, 5}, value_at(inputs, 6, 0, 0) != 0);
}

// Query times key, then weights times value: [..., heads, length, embedding]. Keys and values may have fewer heads.
// `at` 1: the heads come after the length, [batch, length, heads, embedding].
uint64_t attention(const Inputs& inputs, size_t at) {
  const Sizes *q = sizes_of(inputs, 0), *k = sizes_of(inputs, 1), *v = sizes_of(inputs, 2);
  if (!q || !k || !v || q->size() < 2 || k->size() != q->size() || v->size() != q->size()) return 0;
  if (at == 1 && q->size() != 4) return 0;  // sequences of different lengths, packed into one
  const size_t last = q->size() - 1, length = last - 1 - at;
  Product pairs;  // of a query and a key, over all heads and batches
  for (size_t i = 0; i < last; ++i) pairs.times((*q)[i]);
  pairs.times((*k)[length]).times(2);
  return Product(pairs).times((*q)[last]).value() + Product(pairs).times((*v)[last]).value();
}

struct Formula {
  std::string_view op;
  uint64_t (*flops)(const Inputs& inputs, size_t at);
  size_t at;
};

constexpr std::array<Formula, 26> kFormulas{{
    // As torch.profiler.
    {"aten::mm", matrix_product, 0},
    {"aten::addmm", matrix_product, 1},
    {"aten::bmm", batched_product, 0},
    {"aten::baddbmm", batched_product, 1},
    {"aten::conv2d", convolution, 0},
    {"aten::add", elements, 0},
    {"aten::mul", elements, 0},
    // As torch.utils.flop_counter (conv_flop, sdpa_flop); a linear counts as the matrix product that it becomes.
    {"aten::linear", linear, 0},
    {"aten::conv1d", convolution, 0},
    {"aten::conv3d", convolution, 0},
    {"aten::conv_transpose1d", transposed, 0},
    {"aten::conv_transpose2d", transposed, 0},
    {"aten::conv_transpose3d", transposed, 0},
    {"aten::convolution", any_convolution, 0},
    {"aten::scaled_dot_product_attention", attention, 0},
    {"aten::_scaled_dot_product_attention", attention, 0},
    {"aten::_scaled_dot_product_attention_math", attention, 0},
    {"aten::_scaled_dot_product_flash_attention", attention, 0},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention, 0},
    {"aten::_scaled_dot_product_efficient_attention", attention, 0},
    {"aten::_scaled_dot_product_cudnn_attention", attention, 0},
    {"aten::_scaled_dot_product_fused_attention_overrideable", attention, 0},
    {"aten::_scaled_dot_product_attention_math_for_mps", attention, 0},
    {"aten::_flash_attention_forward", attention, 1},
    {"aten::_efficient_attention_forward", attention, 1},
    {"aten::_cudnn_attention_forward", attention, 0},
}};

const Formula* find(std::string_view op) {
  const auto* const it = std::ranges::find(kFormulas, op, &Formula::op);
  return it == kFormulas.end() ? nullptr : it;
}

}  // namespace

bool has_flops(std::string_view op) { return find(op) != nullptr; }

uint64_t flops_of(std::string_view op, const Inputs& inputs) {
  const Formula* formula = find(op);
  return formula ? formula->flops(inputs, formula->at) : 0;
}

Flops::Flops(const Process& process) : process_(process) {
  is_on_ = std::ranges::none_of(process.sources,
                                [](const Source& s) { return s.name == "flops" && s.state == SourceState::kOff; });
}

uint64_t Flops::of(NameId name, std::string_view text, StringId inputs) {
  if (!is_on_ || !inputs) return 0;
  if (name.value >= has_.size()) has_.resize(std::max<size_t>(name.value + 1, has_.size() * 2));
  int8_t& has = has_[name.value];
  if (has == 0) has = has_flops(text) ? 1 : -1;
  if (has < 0) return 0;
  const auto [it, is_new] = known_.try_emplace(pair_key(name.value, inputs.value), 0);
  if (is_new) it->second = flops_of(text, decode_inputs(process_.string(inputs)));
  return it->second;
}

}  // namespace torchprof::formats
