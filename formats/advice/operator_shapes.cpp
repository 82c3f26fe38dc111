#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr uint8_t kFloat = 6, kDouble = 7;  // c10::ScalarType
constexpr int64_t kLargeTable = 100'000;    // elements of an embedding

// What the sizes and types of tensors tell.
class Shapes {
 public:
  explicit Shapes(OperatorSubject& o) : o_(o) {}

  // Dense gradients of embeddings of which a batch uses a few rows.
  //
  // Without: what operators on a whole table take, less the rows that are used.
  void embeddings() {
    std::map<Shape, std::pair<int64_t, uint32_t>> tables;  // by the table's sizes: most rows used, forward operator
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_operator(i) || o_.text(i) != "aten::embedding_dense_backward" || !o_.is_in_step(i)) continue;
      const Tensor *grad = o_.tensor(i, 0), *indices = o_.tensor(i, 1);
      const int64_t rows = o_.integer(i, 2, 0);
      if (grad == nullptr || indices == nullptr || grad->sizes.empty() || rows <= 0) continue;
      auto& [used, forward] = tables[{rows, grad->sizes.back()}];
      used = std::max(used, elements_of(indices->sizes));
      forward = o_.forward[o_.top[i]];
    }
    std::erase_if(tables, [](const auto& each) {
      const auto& [sizes, of] = each;
      return elements_of(sizes) < kLargeTable || of.first * 4 > sizes[0];
    });
    if (tables.empty()) return;
    // Weights that a product uses, too, have a dense gradient anyway.
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !is_product(o_.text(i))) continue;
      for (const Shape* each : o_.matrices(i)) {
        tables.erase(*each);
        tables.erase(Shape(each->rbegin(), each->rend()));
      }
    }
    if (tables.empty()) return;
    Group group;
    GroupCost on_rows{.by_step = std::vector<int64_t>(o_.view.steps().size())};
    std::map<Shape, double> by_table;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_operator(i) || !o_.is_in_step(i) || o_.claims.is_claimed(i)) continue;
      const std::string_view name = o_.text(i);
      if (name == "aten::embedding" || name.starts_with("aten::to_sparse")) continue;
      double part = 0;
      if (name == "aten::embedding_dense_backward") {
        const Tensor* grad = o_.tensor(i, 0);
        if (grad == nullptr || grad->sizes.empty()) continue;
        const auto table = tables.find({o_.integer(i, 2, 0), grad->sizes.back()});
        if (table == tables.end()) continue;
        part = 1;
        by_table[table->first] += static_cast<double>(o_.spans[i].ns());
      } else {
        part = part_of_tables(i, tables);
        if (part == 0) continue;
      }
      // The place is the forward's.
      on_rows.add(o_.claims.step_of(i), 0, static_cast<int64_t>(part * static_cast<double>(o_.claims.free_ns(i))));
      group.add(i);
      i = o_.claims.end_of(i) - 1;
    }
    const auto most = std::ranges::max_element(by_table, {}, [](const auto& each) { return each.second; });
    if (most == by_table.end()) return;
    const auto& [sizes, of] = *tables.find(most->first);
    o_.tell(
        {.rule = "dense gradient",
         .what = "Gradients of embeddings are dense, so that backward, zero_grad and optimizer work on all rows: {}.",
         .evidence = "A batch uses at most " + std::to_string(of.first) + " of the " + std::to_string(sizes[0]) +
                     " rows of an embedding " + shape_text(sizes) + ".",
         .where = of.second == kNoSpan ? std::string() : o_.view.where(o_.row.place[of.second]),
         .todo =
             "Where the embedding is made, pass sparse=True (nn.Embedding, nn.EmbeddingBag), with an optimizer that "
             "can: SGD, Adagrad, SparseAdam."},
        group, on_rows, 1 - static_cast<double>(of.first) / static_cast<double>(sizes[0]));
  }

  // A layer over all positions of which one is used.
  //
  // Without: the part that is used.
  void unused_positions() {
    struct Layer {
      Group group{};
      Shape sizes{};
      uint64_t times = 0;
    };
    std::map<std::pair<uint32_t, Shape>, Layer> layers;  // by place and result
    std::set<std::pair<uint32_t, Shape>> used;           // of which more is used
    std::map<Shape, std::pair<uint32_t, bool>> made;     // by sizes of the result: the layer, and whether it was cut
    const auto end = [&](const std::pair<uint32_t, bool>& of, const Shape& sizes) {
      const auto key = std::pair(o_.row.place[of.first], sizes);
      if (!of.second) {
        used.insert(key);
        return;
      }
      Layer& layer = layers[key];
      layer.sizes = sizes;
      layer.group.add(of.first);
      ++layer.times;
    };
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !o_.is_in_step(i)) continue;
      const std::string_view name = o_.text(i);
      if (!o_.is_node(i)) {
        const Tensor* of = o_.first_tensor(i);
        if (of != nullptr)
          if (const auto found = made.find(of->sizes); found != made.end()) {
            if (cuts_to_one(i)) {
              found->second.second = true;
            } else if (name != "aten::slice" || !is_whole_slice(i)) {
              // Something uses all of it.
              used.insert({o_.row.place[found->second.first], of->sizes});
              made.erase(found);
            }
          }
        if (name == "aten::linear" || name == "aten::matmul") {
          const Tensor *x = o_.tensor(i, 0), *w = o_.tensor(i, 1);
          if (x != nullptr && w != nullptr && x->sizes.size() == 3 && w->sizes.size() == 2 && x->sizes[1] > 1) {
            Shape sizes = x->sizes;
            sizes[2] = name == "aten::linear" ? w->sizes[0] : w->sizes[1];
            if (const auto found = made.find(sizes); found != made.end()) end(found->second, sizes);
            made[sizes] = {i, false};
          }
        }
      }
      i = o_.claims.end_of(i) - 1;
    }
    for (const auto& [sizes, of] : made) end(of, sizes);
    for (auto& [key, layer] : layers) {
      if (used.contains(key)) continue;
      const std::string where = o_.view.where(key.first);
      o_.add_backward(layer.group);
      o_.tell({.rule = "unused positions",
               .what = "A linear layer computes all positions, of which one is used: {}.",
               .evidence = "Its result is " + shape_text(layer.sizes) + "; only one of its " +
                           std::to_string(layer.sizes[1]) + " positions is taken from it.",
               .where = where,
               .todo = "Take the position before the layer: head(x[:, -1])."},
              layer.group, 1 - 1.0 / static_cast<double>(layer.sizes[1]));
    }
  }

  // Products with a matrix that was made dense for them.
  //
  // Without: a tenth of it, as sparse matrices that are worth it have fewer elements still.
  void sparse_products() {
    Group group;
    std::set<Shape> dense;
    std::string where;
    Shape sizes;
    uint64_t times = 0;
    uint32_t step = Claims::kNoStep;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !o_.is_in_step(i) || o_.claims.is_claimed(i)) continue;
      if (o_.claims.step_of(i) != step) dense.clear();
      step = o_.claims.step_of(i);
      if (o_.text(i) == "aten::to_dense" || o_.text(i) == "aten::_to_dense") {
        const Tensor* of = o_.first_tensor(i);
        if (of == nullptr || of->sizes.size() != 2) continue;
        if (dense.insert(of->sizes).second && sizes.empty()) {
          sizes = of->sizes;
          where = o_.view.where(o_.row.place[i]);
        }
        group.add(i);
      } else if (is_product(o_.text(i)) && !dense.empty()) {
        for (const Shape* each : o_.matrices(i)) {
          if (!dense.contains(*each)) continue;
          group.add(i);
          ++times;
          break;
        }
      }
    }
    if (times == 0) return;
    o_.add_backward(group);
    o_.tell({.rule = "sparse as dense",
             .what = "A sparse matrix is made dense in each step, and products work on all its zeros: {}.",
             .evidence =
                 "It is " + shape_text(sizes) + "; " + number_text(o_.view.per_step(times), "product") + " with it.",
             .where = std::move(where),
             .todo = "Keep it sparse: torch.sparse.mm(matrix, x), or scatter the edges (index_add)."},
            group, 0.9);
  }

  // Rows that are looked up by a product with a matrix of zeros and ones.
  //
  // Without: what an embedding reads and writes, its dense gradient included.
  void one_hot_products() {
    Group group;
    Shape sizes;
    double kept = 0;
    std::map<Shape, std::vector<uint32_t>> made;  // by sizes, in this step: one_hot() and what converts what it made
    PlaceSums places;
    uint32_t step = Claims::kNoStep;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !o_.is_in_step(i) || o_.claims.is_claimed(i)) continue;
      if (o_.claims.step_of(i) != step) made.clear();
      step = o_.claims.step_of(i);
      const Tensor *first = o_.tensor(i, 0), *second = o_.tensor(i, 1);
      if (first == nullptr) continue;
      const std::string_view name = o_.text(i);
      if (const int64_t classes = o_.integer(i, 1, -1); name == "aten::one_hot" && classes > 0) {
        Shape of = first->sizes;
        of.push_back(classes);
        made[of] = {i};
        continue;
      }
      const auto found = made.find(first->sizes);
      if (found == made.end()) continue;
      if (name == "aten::to") {
        found->second.push_back(i);
      } else if ((name == "aten::matmul" || name == "aten::mm" || name == "aten::linear") && second != nullptr) {
        sizes = first->sizes;
        for (const uint32_t each : found->second) group.add(each);
        found->second.clear();
        group.add(i);
        add_to(places[o_.row.place[i]].ns, o_.spans[i].ns());
        constexpr double kPasses = 3;  // forward, and a backward that reads and writes
        const auto classes = static_cast<double>(sizes.back());
        const double rows = static_cast<double>(elements_of(sizes)) / classes;
        kept += bytes_of(*second) * (1 + rows / classes) * kPasses / o_.bytes_per_ns;
      }
    }
    o_.add_backward(group);
    o_.tell({.rule = "one-hot product",
             .what = "A product with the result of one_hot() looks up rows of a table: {}.",
             .evidence = "In " + shape_text(sizes) + " one element of " +
                         std::to_string(sizes.empty() ? 0 : sizes.back()) + " is not zero.",
             .where = o_.view.where(most_of(places)),
             .todo = "Take the rows by their numbers: F.embedding(numbers, table), or nn.Embedding."},
            group, 1, o_.per_step(kept));
  }

  // float64 where the rest is float32.
  //
  // Without: half of the time.
  void doubles() {
    uint64_t floats = 0, doubles = 0;
    for (const auto& [type, n] : o_.parameter_types) {
      if (type == kFloat) floats += n;
      if (type == kDouble) doubles += n;
    }
    std::map<uint32_t, Group> by_place;
    std::map<uint32_t, int64_t> sums;
    Group group;
    int64_t product_ns = 0, all_ns = 0;
    std::string_view most_name;
    int64_t most_ns = 0;
    std::map<uint32_t, int64_t> by_name;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !o_.is_in_step(i)) continue;
      if (!o_.claims.is_claimed(i) && works_on_doubles(i)) {
        group.add(i);
        const int64_t ns = o_.claims.free_ns(i);
        add_to(all_ns, ns);
        if (is_product(inner_name(i)) || inner_name(i).find("conv") != std::string_view::npos) add_to(product_ns, ns);
        if (!o_.is_node(i)) add_to(sums[o_.row.place[i]], ns);
        add_to(by_name[o_.spans[i].name], ns);
        if (by_name[o_.spans[i].name] > most_ns) {
          most_ns = by_name[o_.spans[i].name];
          most_name = o_.plain_text(i);
        }
      }
      i = o_.claims.end_of(i) - 1;
    }
    if (group.empty()) return;
    // Where all parameters are float64 it may be meant; then it has to be most of the work.
    const bool is_meant = doubles > floats;
    if (is_meant && product_ns * 2 < all_ns) return;
    PlaceSums places;
    for (const auto& [place, ns] : sums) places[place].ns = ns;
    std::string evidence = "Operators on float64 take " + ns_text(o_.view.per_step(all_ns)) + ", most of it in " +
                           std::string(most_name) + "; in float32 they would take about half.";
    if (floats > doubles) evidence += " Parameters are float32.";
    o_.tell({.rule = "float64",
             .what = "Operators work in float64: {}.",
             .evidence = std::move(evidence),
             .where = o_.view.where(most_of(places)),
             .todo = is_meant ? "If float32 is exact enough, make the model and its data float32 (.float())."
                              : "Make the data float32 where it comes from (NumPy's is float64): .float(), "
                                "dtype=torch.float32."},
            group, 0.5, 0, 5);
  }

 private:
  // Which part of what an operator is given has the sizes of one of the tables.
  template <class Tables>
  double part_of_tables(uint32_t i, const Tables& tables) const {
    double of_tables = 0, all = 0;
    for (const Input& input : o_.inputs(i)) {
      if (input.left_out != 0) return 0;
      for (const Tensor& each : input.tensors) {
        const auto n = static_cast<double>(elements_of(each.sizes));
        all += n;
        if (tables.contains(each.sizes)) of_tables += n;
      }
    }
    return all == 0 ? 0 : of_tables / all;
  }

  // x[:, -1], x[:, 3:4] and x.select(1, 0) of three dimensions.
  bool cuts_to_one(uint32_t i) const {
    const std::string_view name = o_.text(i);
    if (name == "aten::select") return o_.integer(i, 1, -1) == 1;
    if (name != "aten::slice" || o_.integer(i, 1, -1) != 1) return false;
    const Tensor* of = o_.tensor(i, 0);
    const int64_t length = of->sizes[1];
    const auto within = [length](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length); };
    return within(o_.integer(i, 3, length)) - within(o_.integer(i, 2, 0)) == 1;
  }
  bool is_whole_slice(uint32_t i) const {
    const Tensor* of = o_.tensor(i, 0);
    const int64_t dimension = o_.integer(i, 1, -1);
    if (of == nullptr || dimension < 0 || dimension >= static_cast<int64_t>(of->sizes.size())) return false;
    return o_.integer(i, 2, 0) == 0 && o_.integer(i, 3, INT64_MAX) >= of->sizes[static_cast<size_t>(dimension)];
  }

  // The name of the operator itself, of the engine's the first inside.
  std::string_view inner_name(uint32_t i) const {
    const std::string_view name = o_.plain_text(i);
    if (name.starts_with("Mm") || name.starts_with("Addmm") || name.starts_with("Bmm")) return "aten::mm";
    return name.find("Convolution") != name.npos ? "aten::conv2d" : name;
  }

  // By the operator, or in the engine what is inside it.
  bool works_on_doubles(uint32_t i) const {
    constexpr int64_t kLarge = 1000;  // elements
    for (uint32_t j = i; j < o_.claims.end_of(i); ++j) {
      if (!o_.is_operator(j)) continue;
      for (const Input& input : o_.inputs(j))
        for (const Tensor& each : input.tensors)
          if (each.type == kDouble && elements_of(each.sizes) >= kLarge) return true;
    }
    return false;
  }

  OperatorSubject& o_;
};

// Gradients of parameters that no optimizer has: a backward goes on behind the last gradient that anything takes.
class UnusedGradients {
 public:
  explicit UnusedGradients(OperatorSubject& o) : o_(o) {}

  // Without: less what the engine does after that gradient. It goes from the loss to the first layer, so what is behind
  // leads to gradients that nothing takes. A parameter is known by its sizes; where others share them it is taken.
  void run() {
    if (!saw_all_optimizers() || !find_taken()) return;
    for (const uint32_t pass : o_.passes())
      if (function_name(o_.text(pass)) == "backward" && !add_pass(pass)) return;
    if (gradients_ == 0) return;
    o_.tell({.rule = "unused gradient",
             .what = "backward() goes on through layers of which no optimizer has a parameter: {}.",
             .evidence = "It makes " + number_text(o_.view.per_step(gradients_), "gradient") +
                         " that nothing takes, the largest of them " + shape_text(largest_) + ".",
             .where = o_.view.where(most_of(places_)),
             .todo = "Freeze these layers: requires_grad_(False) on their parameters, or call them under "
                     "torch.no_grad()."},
            group_);
  }

 private:
  // An optimizer that was made and not seen at work may take any gradient.
  bool saw_all_optimizers() const {
    const auto made = std::ranges::count(o_.timeline.states, StateKind::kOptimizer, &TimelineState::kind);
    std::set<uint32_t> working;
    for (uint32_t i = 0; i < o_.count(); ++i)
      if (o_.spans[i].kind == SpanKind::kModule && o_.role(i) == NameRole::kOptimizer) working.insert(o_.spans[i].name);
    return made > 0 && working.size() >= static_cast<size_t>(made);
  }

  // All that optimizers work on, and in the steps whatever else is outside of modules' functions and of the graph:
  // norms, averages, updates by hand. False: gradients may go where operators do not show it.
  bool find_taken() {
    uint32_t end_of_module = 0;  // of its call, state_dict(), zero_grad()
    for (uint32_t i = 0; i < o_.count(); ++i) {
      const std::string_view name = o_.text(i);
      if (name.starts_with("c10d::") || name.ends_with("retain_grad")) return false;
      if (o_.is_optimizer_step(i)) {
        if (!take(i, updated_)) return false;
        i = o_.claims.end_of(i) - 1;
      } else if (o_.is_function(i) && is_in_file(name, "torch/nn/modules/module.py")) {
        end_of_module = std::max(end_of_module, o_.claims.end_of(i));
      } else if (i >= end_of_module && o_.is_outermost(i) && o_.is_in_step(i) && !o_.is_node(i)) {
        if (!o_.takes_part(i) && !take(i, taken_)) return false;
      }
    }
    taken_.insert(updated_.begin(), updated_.end());
    return true;
  }

  bool take(uint32_t span, std::set<Shape>& sizes) const {
    for (uint32_t i = span; i < o_.claims.end_of(span); ++i)
      for (const Input& input : o_.inputs(i)) {
        if (input.left_out > 0) return false;
        for (const Tensor& each : input.tensors) sizes.insert(each.sizes);
      }
    return true;
  }

  // The gradient that a node adds up; null: it is another node.
  const Tensor* gradient_of(uint32_t node) const {
    for (uint32_t i = node; i < o_.claims.end_of(node); ++i)
      if (o_.text(i) == kAccumulate) return o_.first_tensor(i);
    return nullptr;
  }

  // False: no optimizer is seen to take a gradient of this pass, or the program's own functions run behind what is.
  bool add_pass(uint32_t pass) {
    std::vector<uint32_t> behind;
    bool is_updated = false;
    for (const uint32_t node : o_.nodes_in(pass)) {
      if (!o_.is_outermost(node)) continue;
      behind.push_back(node);
      const Tensor* gradient = gradient_of(node);
      if (gradient == nullptr || !taken_.contains(gradient->sizes)) continue;
      is_updated |= updated_.contains(gradient->sizes);
      behind.clear();
    }
    if (!is_updated) return false;
    for (const uint32_t node : behind) {
      for (uint32_t i = node; i < o_.claims.end_of(node); ++i)
        if (!o_.is_operator(i)) return false;
      group_.add(node);
      if (const Tensor* gradient = gradient_of(node)) {
        ++gradients_;
        if (elements_of(gradient->sizes) > elements_of(largest_) || largest_.empty()) largest_ = gradient->sizes;
      }
      if (const uint32_t from = o_.forward[node]; from != kNoSpan)
        add_to(places_[o_.row.place[from]].ns, o_.spans[node].ns());
    }
    return true;
  }

  OperatorSubject& o_;
  std::set<Shape> updated_, taken_;  // sizes: by optimizers, by anything
  Group group_;
  PlaceSums places_;
  Shape largest_;
  size_t gradients_ = 0;
};

}  // namespace

void find_dense_gradients(OperatorSubject& subject) { Shapes(subject).embeddings(); }
void find_unused_gradients(OperatorSubject& subject) { UnusedGradients(subject).run(); }
void find_unused_positions(OperatorSubject& subject) { Shapes(subject).unused_positions(); }
void find_sparse_as_dense(OperatorSubject& subject) { Shapes(subject).sparse_products(); }
void find_one_hot_products(OperatorSubject& subject) { Shapes(subject).one_hot_products(); }
void find_float64(OperatorSubject& subject) { Shapes(subject).doubles(); }

}  // namespace torchprof::formats
