#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// The same model forward or backward once more than a step needs.
class SecondPasses {
 public:
  explicit SecondPasses(OperatorSubject& o) : o_(o) {}

  void find() {
    const std::vector<std::vector<Pass>> steps = passes_by_step();
    Group grads, again, unused;
    size_t with_grads = 0, with_again = 0, with_unused = 0;
    std::string again_name, unused_name;
    const auto unused_calls = calls_without_backward(steps);
    for (size_t s = 0; s < steps.size(); ++s) {
      const std::vector<Pass>& passes = steps[s];
      for (size_t a = 0; a < passes.size(); ++a)
        for (size_t b = 0; b < passes.size(); ++b) {
          if (a == b || passes.size() > 2) continue;
          const Pass &extra = passes[a], &main = passes[b];
          if (extra.is_grad && !main.is_grad && are_alike(extra, main) && !uses(main, extra)) {
            ++with_grads;
            add_pass(extra, main, grads);
          }
        }
      if (passes.size() == 2 && !passes[0].is_grad && !passes[1].is_grad) {
        const std::set<uint32_t> before(passes[0].sequences.begin(), passes[0].sequences.end());
        const auto shared = std::ranges::count_if(passes[1].sequences, [&](uint32_t n) { return before.contains(n); });
        if (static_cast<size_t>(shared) * 2 > passes[1].nodes.size()) {
          ++with_again;
          for (const uint32_t node : passes[1].nodes)
            if (o_.forward[node] != kNoSpan && before.contains(o_.spans[o_.forward[node]].sequence)) again.add(node);
        }
      }
      if (unused_calls[s] != kNoSpan) {
        ++with_unused;
        unused.add(unused_calls[s]);
        unused_name = o_.text(unused_calls[s]);
      }
    }
    const auto in_most = [&](size_t n) { return is_in_most(n, steps.size()); };
    if (in_most(with_grads))
      o_.tell(
          {.rule = "second backward",
           .what = "A second forward and backward of the same model run in each step, for torch.autograd.grad(): {}.",
           .evidence = "backward() goes through as many operators again, and uses nothing of it.",
           .where = line_of_pass(grads),
           .todo = "Take the gradients from the backward that is there (p.grad after backward()), or do this in some "
                   "steps only."},
          grads, 1, 0, kLargePercent);
    if (in_most(with_again))
      o_.tell({.rule = "second backward",
               .what = "backward() goes twice through the same graph in each step (retain_graph=True): {}.",
               .evidence = "The second one repeats most of the first one's operators.",
               .todo = "Add the losses and call backward() once, if their gradients need not be apart."},
              again, 1, 0, kLargePercent);
    if (tell_evaluations(steps)) return;
    if (in_most(with_unused))
      o_.tell(
          {.rule = "second forward",
           .what = unused_name + " is called twice in each step on inputs of the same shape; one of the calls has no "
                                 "backward: {}.",
           .evidence = {},
           .todo =
               "If both get the same batch, keep what the other call gave (detach() it); if it is an evaluation, do "
               "it each some steps."},
          unused, 1, 0, kLargePercent);
  }

 private:
  static constexpr double kLargePercent = 12.5;  // it may be meant, so small ones are not told
  static bool is_in_most(size_t n, size_t steps) { return n * 10 >= steps * 8 && n > 0; }

  struct Pass {  // of autograd's engine
    uint32_t span;
    bool is_grad = false;  // torch.autograd.grad(): gradients are results
    std::vector<uint32_t> nodes{};
    std::vector<uint32_t> sequences{};
    std::set<uint32_t> roots{};  // calls of modules whose operators it goes back through
  };

  static std::set<uint32_t> roots_of(const std::vector<Pass>& passes) {
    std::set<uint32_t> roots;
    for (const Pass& pass : passes) roots.insert(pass.roots.begin(), pass.roots.end());
    return roots;
  }

  uint32_t root_module(uint32_t i) const {
    uint32_t root = kNoSpan;
    for (; i != kNoSpan; i = o_.spans[i].parent)
      if (o_.is_module(i)) root = i;
    return root;
  }

  std::vector<std::vector<Pass>> passes_by_step() const {
    std::vector<std::vector<Pass>> steps(o_.view.steps().size());
    for (const uint32_t span : o_.passes()) {
      Pass pass{.span = span, .is_grad = function_name(o_.text(span)) == "grad"};
      for (const uint32_t node : o_.nodes_in(span)) {
        if (o_.text(node).ends_with(kAccumulate)) continue;
        pass.nodes.push_back(node);
        const uint32_t forward = o_.forward[node];
        if (forward == kNoSpan) continue;
        pass.sequences.push_back(o_.spans[forward].sequence);
        if (const uint32_t root = root_module(forward); root != kNoSpan) pass.roots.insert(root);
      }
      if (!pass.nodes.empty()) steps[o_.claims.step_of(span)].push_back(std::move(pass));
    }
    return steps;
  }

  // Whether a backward goes through what another one did, so that its results are needed (create_graph).
  bool uses(const Pass& later, const Pass& earlier) const {
    return std::ranges::any_of(later.nodes, [&](uint32_t node) {
      return o_.forward[node] != kNoSpan && o_.forward[node] >= earlier.span &&
             o_.forward[node] < o_.claims.end_of(earlier.span);
    });
  }

  std::string line_of_pass(const Group& group) const {
    PlaceSums places;
    for (const Group::Stretch& s : group.stretches)
      for (uint32_t i = s.first; i < o_.claims.end_of(s.last); ++i)
        if (o_.is_function(i) && is_in_file(o_.text(i), "torch/autograd/__init__.py") &&
            function_name(o_.text(i)) == "grad")
          add_to(places[o_.row.place[i]].ns, o_.spans[i].ns());
    return o_.view.where(most_of(places));
  }

  // As many nodes of the same kinds, give or take a quarter.
  bool are_alike(const Pass& a, const Pass& b) const {
    std::map<uint32_t, int64_t> kinds;
    for (const uint32_t node : a.nodes) ++kinds[o_.spans[node].name];
    for (const uint32_t node : b.nodes) --kinds[o_.spans[node].name];
    int64_t different = 0;
    for (const auto& [kind, n] : kinds) different += std::abs(n);
    return static_cast<size_t>(different) * 4 <= a.nodes.size() + b.nodes.size();
  }

  // A pass with the forward that only it uses: the program's function around all of it, if there is nothing else in it.
  void add_pass(const Pass& pass, const Pass& other, Group& group) const {
    std::vector<uint32_t> parts{pass.span};
    for (const uint32_t root : pass.roots)
      if (!other.roots.contains(root) && o_.claims.step_of(root) == o_.claims.step_of(pass.span)) parts.push_back(root);
    const uint32_t function = function_of(parts);
    const bool has_other = function != kNoSpan && other.span >= function && other.span < o_.claims.end_of(function);
    add_parts(parts, has_other ? kNoSpan : function, group);
  }

  // The program's function around the first of them, if all of them are in it and little else is; otherwise kNoSpan.
  uint32_t function_of(const std::vector<uint32_t>& parts) const {
    const uint32_t around = o_.program_around(parts.front());
    if (around == kNoSpan || !o_.is_part_of_step(around)) return kNoSpan;
    int64_t ns = 0;
    for (const uint32_t part : parts) {
      if (part < around || part >= o_.claims.end_of(around)) return kNoSpan;
      add_to(ns, o_.spans[part].ns());
    }
    return ns * 10 >= o_.spans[around].ns() * 6 ? around : kNoSpan;
  }

  // With all that the function around them does, where there is one.
  static void add_parts(const std::vector<uint32_t>& parts, uint32_t function, Group& group) {
    if (function != kNoSpan) return group.add(function);
    for (const uint32_t part : parts) group.add(part);
  }

  // In each step the one call of a root module through which no backward goes, where there is one other call of the
  // same module on the same shapes through which one goes; kNoSpan: there is no such pair.
  std::vector<uint32_t> calls_without_backward(const std::vector<std::vector<Pass>>& steps) const {
    std::vector<std::vector<uint32_t>> calls(steps.size());
    o_.each_module_call([&](uint32_t i) {
      if (!o_.is_in_step(i)) return false;
      calls[o_.claims.step_of(i)].push_back(i);
      return true;
    });
    std::vector<uint32_t> result(steps.size(), kNoSpan);
    for (size_t s = 0; s < steps.size(); ++s) {
      const std::set<uint32_t> used = roots_of(steps[s]);
      std::map<uint32_t, std::vector<uint32_t>> by_name;
      for (const uint32_t call : calls[s]) by_name[o_.spans[call].name].push_back(call);
      for (const auto& [name, of] : by_name) {
        if (of.size() != 2 || used.contains(of[0]) == used.contains(of[1])) continue;
        const Tensor *a = first_input(of[0]), *b = first_input(of[1]);
        if (a == nullptr || b == nullptr || a->sizes != b->sizes || elements_of(a->sizes) == 0) continue;
        result[s] = used.contains(of[0]) ? of[1] : of[0];
      }
    }
    return result;
  }

  // The model runs in each step without a backward, after its eval(): on data that it does not learn from.
  bool tell_evaluations(const std::vector<std::vector<Pass>>& passes) {
    Group group;
    size_t with = 0, calls = 0;
    std::string name;
    PlaceSums places;
    const auto evaluations = evaluations_by_step(passes);
    for (const std::vector<uint32_t>& of : evaluations) {
      if (of.empty()) continue;
      ++with;
      calls += of.size();
      name = without_role(o_.text(of.front()), NameRole::kModule);
      for (const uint32_t call : of) add_to(places[o_.row.place[call]].ns, o_.spans[call].ns());
      add_parts(of, function_of(of), group);
    }
    if (!is_in_most(with, passes.size())) return false;
    return o_.tell({.rule = "evaluation",
                    .what = name + " is evaluated in each step: {}.",
                    .evidence = "After eval() it is called " + plural(calls / with, "time") +
                                ", and no backward goes through that.",
                    .where = o_.view.where(most_of(places)),
                    .todo = "Evaluate each some hundred steps or once an epoch, or on a part of the data."},
                   group, 1, 0, kLargePercent);
  }

  // In each step that has a backward the calls of root modules in evaluation mode through which none goes.
  std::vector<std::vector<uint32_t>> evaluations_by_step(const std::vector<std::vector<Pass>>& passes) const {
    std::vector<std::vector<uint32_t>> result(passes.size());
    size_t step = Claims::kNoStep;
    bool is_evaluating = false;
    std::set<uint32_t> used;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_in_step(i)) continue;
      if (o_.claims.step_of(i) != step) {
        step = o_.claims.step_of(i);
        is_evaluating = false;
        used = roots_of(passes[step]);
      }
      if (o_.is_function(i) && is_in_file(o_.text(i), "torch/nn/modules/module.py")) {
        const std::string_view name = function_name(o_.text(i));
        if (name != "eval" && name != "train") continue;
        is_evaluating = name == "eval";
        i = o_.claims.end_of(i) - 1;  // it calls train()
      } else if (o_.is_module(i)) {
        if (is_evaluating && !used.empty() && !used.contains(i)) result[step].push_back(i);
        i = o_.claims.end_of(i) - 1;
      }
    }
    return result;
  }

  const Tensor* first_input(uint32_t call) const {
    for (uint32_t i = call + 1; i < o_.claims.end_of(call); ++i)
      if (o_.is_operator(i))
        if (const Tensor* of = o_.first_tensor(i)) return of;
    return nullptr;
  }

  OperatorSubject& o_;
};

// Generation that computes the whole sequence again for each new position.
class Generation {
 public:
  explicit Generation(OperatorSubject& o) : o_(o) {}

  // Without: of what the operators do, the part of one position. No process with a backward is told of it.
  void run() {
    constexpr size_t kFewest = 8;  // steps, and positions
    if (!o_.nodes.empty()) return;
    const std::vector<StepSpan>& steps = o_.view.steps();
    std::vector<Shape> first(steps.size());  // of the first input of each step's first layer
    std::vector<uint32_t> call(steps.size(), kNoSpan);
    Group group;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      const size_t step = o_.claims.step_of(i);
      if (step == Claims::kNoStep) continue;
      const TimelineSpan& s = o_.spans[i];
      if (s.kind == SpanKind::kModule && call[step] == kNoSpan) call[step] = i;
      if (o_.is_operator(i) && first[step].empty()) first[step] = sequence_of(i);
      if (o_.is_outermost(i)) group.add(i);
    }
    size_t grows = 0, looked = 0;
    std::vector<int64_t> lengths;
    for (size_t i = 1; i < steps.size(); ++i) {
      if (first[i].empty() || first[i].size() != first[i - 1].size()) continue;
      ++looked;
      size_t differ = 0, by_one = 0;
      for (size_t d = 0; d < first[i].size(); ++d) {
        if (first[i][d] == first[i - 1][d]) continue;
        ++differ;
        if (first[i][d] != first[i - 1][d] + 1) continue;
        ++by_one;
        lengths.push_back(first[i][d]);
      }
      grows += differ == 1 && by_one == 1;
    }
    if (looked < kFewest || grows * 10 < looked * 9) return;
    const int64_t length = median_of(lengths);
    if (length < static_cast<int64_t>(kFewest)) return;
    Finding f{.rule = "no cache"};
    f.what = "Each new position is generated from the whole sequence again: {}.";
    f.evidence = "From step to step what the first layer gets grows by one position, to " +
                 std::to_string(*std::ranges::max_element(lengths)) + ".";
    for (size_t i = steps.size(); i-- > 0 && f.where.empty();)
      if (call[i] != kNoSpan) f.where = o_.view.where(o_.row.place[call[i]]);
    f.todo =
        "Keep the keys and values of earlier positions in a cache, and compute the new position alone "
        "(use_cache=True, past_key_values).";
    o_.tell(std::move(f), group, 1 - 1 / static_cast<double>(length));
  }

 private:
  Shape sequence_of(uint32_t i) const {
    const std::string_view name = o_.text(i);
    const Tensor* tensor = name == "aten::embedding" ? o_.tensor(i, 1)
                           : name == "aten::linear"  ? o_.tensor(i, 0)
                                                     : nullptr;
    return tensor == nullptr ? Shape{} : tensor->sizes;
  }

  OperatorSubject& o_;
};

// A model that is called many times in a step, each time for one row.
class OneByOne {
 public:
  explicit OneByOne(OperatorSubject& o) : o_(o) {}

  // Without: one call, and the products of all other rows at the speed of a product with many rows. Whether a call
  // needs the result of the call before is not recorded, so this is no cost of the step: the finding says what would
  // be, and comes behind those that are sure.
  void run() {
    for (auto& [name, model] : models()) {
      std::vector<int64_t> numbers;  // of calls, in the steps that have any
      for (const auto& [step, calls] : model.calls_in) numbers.push_back(calls);
      const auto calls = static_cast<uint64_t>(median_of(numbers));
      if (calls < kFewestCalls || model.one_row_calls * 10 < model.calls * 9) continue;
      if (numbers.size() * 2 < o_.view.steps().size()) continue;
      o_.add_backward(model.group);
      const bool has_backward = model.group.stretches.size() > model.calls;
      const double each = static_cast<double>(o_.claims.cost_of(model.group).ns) / static_cast<double>(model.calls);
      const double flops = model.flops / static_cast<double>(model.calls) * (has_backward ? 3 : 1);
      const double all = each * static_cast<double>(calls);
      const double together = each + static_cast<double>(calls - 1) * flops / kFlopsPerNs;
      if (all < static_cast<double>(o_.view.typical_ns()) / 6 || together * 2 > all) continue;
      Finding f{.rule = "batch of one", .weight = kLeastPercent / 100};
      f.what = std::string(without_role(o_.view.text(name), NameRole::kModule)) + " is called " +
               plural(calls, "time") + " in a step, each time for one row.";
      f.evidence = "Its matrix products have one row. The calls" +
                   std::string(has_backward ? " and their backward" : "") + " take " +
                   ns_text(static_cast<int64_t>(all)) + "; one call for as many rows would take about " +
                   ns_text(static_cast<int64_t>(together)) +
                   " (an estimate). Whether a call needs the result of the one before is not known.";
      f.where = o_.view.where(most_of(model.places));
      f.todo =
          "If it does not, call it once with all rows (a batch). If it does, let several sequences, environments or "
          "requests go side by side.";
      o_.findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr uint64_t kFewestCalls = 8;
  // Of float32 on one core, 16 to 64 rows by matrices of 256 to 2,048: 40 to 110 measured with torch 2.15.
  static constexpr double kFlopsPerNs = 40;

  // A root module.
  struct Model {
    std::map<uint32_t, int64_t> calls_in{};  // by step
    size_t calls = 0, one_row_calls = 0;
    Group group{};
    double flops = 0;  // of their products
    PlaceSums places{};
  };

  std::map<uint32_t, Model> models() const {
    std::map<uint32_t, Model> models;
    o_.each_module_call([&](uint32_t i) {
      if (!o_.is_in_step(i)) return true;
      Model& model = models[o_.spans[i].name];
      ++model.calls_in[o_.claims.step_of(i)];
      ++model.calls;
      model.group.add(i);
      add_to(model.places[o_.row.place[i]].ns, o_.spans[i].ns());
      const double flops = flops_of_one_row(i);
      model.flops += flops;
      model.one_row_calls += flops > 0;
      return true;
    });
    return models;
  }

  // Of the products of a call; 0: it has none, or some product has more rows, or something else has arithmetic that
  // grows with the rows (a convolution).
  double flops_of_one_row(uint32_t call) const {
    double flops = 0;
    bool is_one_row = true;
    o_.each_operator(call + 1, o_.claims.end_of(call), [&](uint32_t i) {
      const std::string_view name = o_.text(i);
      if (name.find("conv") != name.npos) is_one_row = false;
      if (!is_product(name)) return;
      // What is multiplied: the first tensor, of those that add the second. By what: the last matrix.
      const bool adds = name == "aten::addmm" || name == "aten::addmv" || name == "aten::baddbmm";
      const Tensor* row = o_.tensor(i, adds ? 1 : 0);
      const std::vector<const Shape*> matrices = o_.matrices(i);
      if (row == nullptr || row->sizes.empty() || matrices.empty()) {
        is_one_row = false;
        return;
      }
      is_one_row = is_one_row && elements_of(row->sizes) == row->sizes.back();
      flops += 2.0 * static_cast<double>(elements_of(*matrices.back()));
    });
    return is_one_row ? flops : 0;
  }

  OperatorSubject& o_;
};

}  // namespace

void find_rows_one_by_one(OperatorSubject& subject) { OneByOne(subject).run(); }
void find_whole_sequences(OperatorSubject& subject) { Generation(subject).run(); }
void find_second_passes(OperatorSubject& subject) { SecondPasses(subject).find(); }

}  // namespace torchprof::formats
