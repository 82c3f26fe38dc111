#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr double kProductFlopsPerNs = 20;  // of fused attention on one core
constexpr uint32_t kNear = 400;            // spans

// Attention by hand: a product that gives T x S, softmax over it, a product with it.
class Attention {
 public:
  explicit Attention(OperatorSubject& o) : o_(o) {}

  void find() {
    Group group;
    double products_ns = 0, kept_ns = 0;
    uint64_t times = 0;
    std::map<std::pair<int64_t, int64_t>, uint64_t> sizes;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !o_.is_in_step(i) || o_.claims.is_claimed(i)) continue;
      if (!is_softmax(o_.text(i))) continue;
      const auto scores = scores_of(o_.first_tensor(i));
      // Of short sequences the matrices are small, and one operator for all takes no less than these.
      constexpr int64_t kShort = 128;
      if (!scores || scores->first < kShort || scores->second < kShort) continue;
      const uint32_t around = parent_of_chain(i);
      const uint32_t before = product_before(i, around, *scores), after = product_after(i, around, *scores);
      if (before == kNoSpan || after == kNoSpan) continue;
      ++times;
      ++sizes[*scores];
      group.add(before, after);
      for (const uint32_t product : {before, after}) {
        products_ns += static_cast<double>(o_.spans[product].ns());
        kept_ns += flops(product) / kProductFlopsPerNs;
      }
    }
    if (group.empty()) return;
    std::string where;
    {
      PlaceSums places;
      for (const Group::Stretch& s : group.stretches) add_to(places[o_.row.place[s.first]].ns, o_.spans[s.first].ns());
      where = o_.view.where(most_of(places));
    }
    o_.add_backward(group);
    // The backward of fused attention has five products of this size, the forward two.
    const bool has_backward = group.stretches.size() > times;
    const double kept = std::min(kept_ns * (has_backward ? 3.5 : 1), products_ns * (has_backward ? 3 : 1));
    const auto most = std::ranges::max_element(sizes, {}, [](const auto& each) { return each.second; });
    o_.tell({.rule = "attention",
             .what = "Attention is written out, with full matrices of scores: {}.",
             .evidence = "Products, a softmax and what is between them on " + std::to_string(most->first.first) +
                         " x " + std::to_string(most->first.second) + " scores for each head, " +
                         number_text(o_.view.per_step(times), "time") + ".",
             .where = std::move(where),
             .todo = "Use torch.nn.functional.scaled_dot_product_attention (is_causal=True for a causal mask); of "
                     "nn.MultiheadAttention need_weights=False; of transformers attn_implementation=\"sdpa\"."},
            group, 1, o_.per_step(kept));
  }

 private:
  // The last two sizes.
  static std::optional<std::pair<int64_t, int64_t>> scores_of(const Tensor* tensor) {
    if (tensor == nullptr || tensor->sizes.size() < 3) return std::nullopt;
    const Shape& sizes = tensor->sizes;
    return std::pair(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  }

  double flops(uint32_t i) const {  // of a product: rows, columns and what is added up, by its first two matrices
    std::vector<const Shape*> shapes;
    for (const Input& input : o_.inputs(i))
      for (const Tensor& each : input.tensors)
        if (each.sizes.size() >= 2) shapes.push_back(&each.sizes);
    if (shapes.size() < 2) return 0;
    const Shape& b = *shapes.back();
    const Shape& a = *shapes[shapes.size() - 2];
    return 2.0 * static_cast<double>(elements_of(a)) * static_cast<double>(b.back());
  }

  static bool is_softmax(std::string_view name) {
    return name == "aten::softmax" || name == "aten::_softmax" || name == "aten::_safe_softmax";
  }
  // The function or module in which the products of an attention are: further out than functions that only call one.
  uint32_t parent_of_chain(uint32_t i) const {
    uint32_t around = o_.spans[i].parent;
    while (around != kNoSpan) {
      uint32_t products = 0;
      o_.each_operator(around + 1, o_.claims.end_of(around), [&](uint32_t j) { products += is_product(o_.text(j)); });
      if (products >= 2) break;
      around = o_.spans[around].parent;
    }
    return around;
  }
  uint32_t product_before(uint32_t softmax, uint32_t around, const std::pair<int64_t, int64_t>& scores) const {
    uint32_t found = kNoSpan;
    const uint32_t from = around == kNoSpan ? softmax - std::min(softmax, kNear) : around + 1;
    o_.each_operator(std::max(from, softmax - std::min(softmax, kNear)), softmax, [&](uint32_t i) {
      if (!is_product(o_.text(i))) return;
      const auto tensors = o_.matrices(i);
      if (tensors.size() < 2) return;
      const Shape &a = *tensors[tensors.size() - 2], &b = *tensors.back();
      const bool gives = a.size() >= 3 && b.size() >= 3 && has(a, scores.first) && has(b, scores.second);
      const bool is_small = elements_of(a) < 4 * elements_of(b) * scores.first;
      if (gives && is_small) found = i;
    });
    return found;
  }
  uint32_t product_after(uint32_t softmax, uint32_t around, const std::pair<int64_t, int64_t>& scores) const {
    uint32_t found = kNoSpan;
    const uint32_t to = around == kNoSpan ? o_.count() : o_.claims.end_of(around);
    o_.each_operator(softmax + 1, std::min(to, softmax + kNear), [&](uint32_t i) {
      if (found != kNoSpan || !is_product(o_.text(i))) return;
      for (const Shape* each : o_.matrices(i)) {
        if (each->size() < 3) continue;
        const std::pair last((*each)[each->size() - 2], each->back());
        if (last == scores) found = i;
      }
    });
    return found;
  }
  static bool has(const Shape& shape, int64_t size) { return std::ranges::find(shape, size) != shape.end(); }

  OperatorSubject& o_;
};

}  // namespace

void find_attention(OperatorSubject& subject) { Attention(subject).find(); }

}  // namespace torchprof::formats
