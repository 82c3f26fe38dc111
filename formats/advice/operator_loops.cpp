#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"

namespace torchprof::formats {
namespace {

constexpr double kFewestTensors = 20;     // of a loop over parameters, in a step
constexpr int64_t kTensorAtOnceNs = 250;  // for each tensor of an operator that takes all at once
// What foreach=True does for an optimizer without fused=True on the CPU, measured with torch 2.15, Adadelta, RMSprop,
// Adamax and NAdam: it saves 22 to 51 % where all parameters together have 0.1 to 0.5 MB. From 3 MB on most are slower
// with it, by up to three times: what it makes in between does not stay in the caches.
constexpr double kForeachSaves = 0.4, kForeachMostBytes = 1 << 20;

// Loops over parameters that call operators for one tensor after the other.
class ParameterLoops {
 public:
  explicit ParameterLoops(OperatorSubject& o) : o_(o) {}

  // Optimizers that are made anew for the same parameters in most steps. What their state costs where it is first
  // written is that of other operators.
  void made_anew() {
    if (!o_.timeline.has_replacing()) return;
    Group group;
    uint64_t times = 0;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_in_step(i)) continue;
      times += o_.spans[i].kind == SpanKind::kModule && o_.timeline.is_replacing(o_.spans[i].name);
      if (!makes_optimizer(i)) continue;
      group.add(i);
      i = o_.claims.end_of(i) - 1;
    }
    if (times * 2 < o_.view.steps().size() || group.empty()) return;
    PlaceSums places;
    for (const TimelineState& s : o_.timeline.states)
      if (s.kind == StateKind::kOptimizer && o_.view.begins_in_step(s.begin)) ++places[s.place].ns;
    o_.tell({.rule = "new optimizer",
             .what = "An optimizer is made anew in each step, for the same parameters: {}.",
             .evidence = "What an optimizer keeps of earlier gradients, as momentum, is lost each time.",
             .where = o_.view.where(most_of(places)),
             .todo = "Make it once, before the loop, and change its settings in it: for g in "
                     "optimizer.param_groups: g[\"lr\"] = lr."},
            group);
  }

  // Optimizers that update one tensor after the other.
  //
  // Without: what their operators read at the speed of memory, and a little for each tensor (kTensorAtOnceNs); where
  // torch has no fused one, what foreach=True leaves of them.
  void optimizers() {
    struct Kind {
      Group group{};
      double kept = 0, bytes = 0;  // of the parameters, in the largest call
      uint64_t operators = 0, tensors = 0, calls = 0;
      std::string_view name;
      bool is_of_torch = false;
    };
    std::map<uint32_t, Kind> kinds;  // by name
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_optimizer_step(i) || !o_.is_in_step(i) || o_.claims.is_claimed(i)) continue;
      std::string_view optimizer = without_role(o_.text(i), NameRole::kOptimizerStep);
      if (optimizer.ends_with(".step")) optimizer.remove_suffix(5);
      struct Named {
        uint64_t count = 0;
        double bytes = 0;  // of what they write
      };
      std::map<uint32_t, Named> names;
      double kept = 0;
      uint64_t operators = 0;
      bool is_single = true, is_of_torch = false;
      for (uint32_t j = i + 1; j < o_.claims.end_of(i); ++j) {
        if (o_.is_function(j) && o_.text(j).find("torch/optim/") != o_.text(j).npos &&
            !is_in_file(o_.text(j), "torch/optim/optimizer.py"))
          is_of_torch = true;
        if (!o_.is_outermost(j)) continue;
        const std::string_view op = o_.text(j);
        // All at once already; or a closure that computes the loss is called in it.
        if (op.starts_with("aten::_foreach_") || op.starts_with("aten::_fused_") || o_.is_node(j)) {
          is_single = false;
          break;
        }
        ++operators;
        Named& named = names[o_.spans[j].name];
        ++named.count;
        if (const Tensor* first = o_.first_tensor(j)) named.bytes += bytes_of(*first);
        kept += static_cast<double>(o_.arithmetic_ns(j));
        j = o_.claims.end_of(j) - 1;
      }
      if (!is_single || operators == 0) continue;
      std::map<uint64_t, uint64_t> times;  // how many names come so often
      for (const auto& [op, named] : names) ++times[named.count];
      const auto most = std::ranges::max_element(
          times, {}, [](const auto& each) { return std::pair(each.first >= 2 ? each.second : 0, each.first); });
      Kind& kind = kinds[o_.spans[i].name];
      kind.name = optimizer;
      kind.group.add(i);
      kind.operators += operators;
      kind.tensors += most->first;
      for (const auto& [op, named] : names) kind.bytes = std::max(kind.bytes, named.bytes);
      // Measured with 200 and 600 tensors, torch 2.15: what takes all at once still makes lists of them, 1 us for each
      // of SGD, 4 us of Adam.
      const auto each = static_cast<double>(kTensorAtOnceNs) *
                        static_cast<double>(std::min<uint64_t>(8, operators / std::max<uint64_t>(1, most->first)));
      kind.kept += kept + static_cast<double>(most->first) * each;
      kind.is_of_torch = is_of_torch || kind.is_of_torch;
      ++kind.calls;
    }
    for (const auto& [id, kind] : kinds) {
      const uint64_t tensors = kind.tensors / kind.calls;
      if (static_cast<double>(tensors) < kFewestTensors) continue;
      const bool has_fused =
          kind.name == "Adam" || kind.name == "AdamW" || kind.name == "SGD" || kind.name == "Adagrad";
      const bool has_foreach_alone = kind.is_of_torch && !has_fused;
      if (has_foreach_alone && kind.bytes > kForeachMostBytes) continue;
      std::string todo =
          "Update them at once with torch._foreach_ functions, or with an optimizer of torch "
          "(fused=True).";
      if (kind.is_of_torch || has_fused)
        todo = has_fused ? "Where the optimizer is made, pass fused=True, or foreach=True where torch cannot."
                         : "Where the optimizer is made, pass foreach=True.";
      o_.tell(
          {.rule = "optimizer",
           .what = std::string(kind.name) + " updates " + plural(tensors, "tensor") +
                   " one by one; to call so many "
                   "operators takes {}.",
           .evidence = number_text(static_cast<double>(kind.operators) / static_cast<double>(kind.calls), "operator") +
                       " in each call of step(). To read and write what they work on would take " +
                       ns_text(static_cast<int64_t>(kind.kept) / static_cast<int64_t>(kind.calls)) + ".",
           .where = made_at(kind.name),
           .todo = std::move(todo)},
          kind.group, has_foreach_alone ? kForeachSaves : 1, has_foreach_alone ? 0 : o_.per_step(kind.kept));
    }
  }

  // Loops over parameters that are no optimizer's: averages, norms, clipping, copies.
  //
  // Without: as of optimizers.
  void others() {
    if (o_.view.has_gpu() || o_.parameters_per_step < kFewestTensors) return;
    const auto fewest = static_cast<uint64_t>(o_.parameters_per_step * 0.6);
    std::map<std::pair<uint32_t, uint32_t>, Loop> loops;  // by function and most frequent operator
    // Operators on what has the shape of a parameter, by the function of the program around them and the step.
    std::map<std::pair<uint32_t, uint32_t>, ByName> found;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (o_.is_optimizer_step(i)) {  // optimizers() has looked at it
        i = o_.claims.end_of(i) - 1;
        continue;
      }
      if (!o_.is_outermost(i)) continue;
      if (o_.is_in_step(i) && !o_.claims.is_claimed(i) && is_of_loop(i))
        found[{loop_around(i), o_.claims.step_of(i)}][o_.spans[i].name].push_back(i);
      i = o_.claims.end_of(i) - 1;
    }
    for (const auto& [key, names] : found) {
      const uint32_t function = key.first == kNoSpan ? 0 : o_.spans[key.first].name;
      for (const auto& [name, ops] : apart(names, fewest)) {
        const std::optional<Turn> turn = turn_of(*ops);
        if (!turn) continue;
        Loop& loop = loops[{function, name}];
        loop.group.add(ops->front(), ops->back());
        loop.kept += turn->kept;
        loop.operators += turn->operators;
        loop.name = name;
        ++loop.calls;
      }
    }
    for (auto& [key, loop] : loops) {
      const std::string_view name = o_.view.text(loop.name);
      std::string bare(name.substr(name.rfind(':') + 1));
      if (bare == "linalg_vector_norm") bare = "norm";
      const std::string at_once = "torch._foreach_" + bare;
      const bool is_norm = bare.find("norm") != bare.npos;
      o_.tell(
          {.rule = "parameter loop",
           .what = "A loop calls operators for each parameter, such as " + std::string(name) + ": {}.",
           .evidence = number_text(static_cast<double>(loop.operators) / static_cast<double>(loop.calls), "operator") +
                       " in a loop; the model has " +
                       plural(static_cast<uint64_t>(std::llround(o_.parameters_per_step)), "parameter") + ".",
           .where = o_.line_of(loop.group),
           .todo = is_norm ? "Do it for all at once: torch.nn.utils.clip_grad_norm_(..., foreach=True), or "
                             "torch._foreach_norm."
                           : "Do it for all at once: " + at_once + "(list of tensors, ...)."},
          loop.group, 1, o_.per_step(loop.kept));
    }
  }

 private:
  struct Loop {
    Group group{};
    double kept = 0;
    uint64_t operators = 0, calls = 0;
    uint32_t name = 0;
  };
  struct Turn {  // of a loop, in a step
    double kept = 0;
    uint64_t operators = 0;
  };
  using ByName = std::map<uint32_t, std::vector<uint32_t>>;

  // Of the operators of a function in a step, those that come at least so often, the most frequent first. Of those that
  // lie among each other, in one loop, the first.
  static std::vector<std::pair<uint32_t, const std::vector<uint32_t>*>> apart(const ByName& names, uint64_t fewest) {
    std::vector<std::pair<uint32_t, const std::vector<uint32_t>*>> by_size, result;
    for (const auto& [name, ops] : names)
      if (ops.size() >= fewest) by_size.emplace_back(name, &ops);
    std::ranges::stable_sort(by_size, std::greater<>(), [](const auto& each) { return each.second->size(); });
    for (const auto& each : by_size) {
      const auto crosses = [&](const auto& other) {
        return each.second->front() <= other.second->back() && other.second->front() <= each.second->back();
      };
      if (std::ranges::none_of(result, crosses)) result.push_back(each);
    }
    return result;
  }

  // From the first to the last of these operators; none: it is no loop over parameters alone.
  std::optional<Turn> turn_of(const std::vector<uint32_t>& ops) const {
    Turn turn{.kept = static_cast<double>(ops.size()) * kTensorAtOnceNs * 2};
    uint64_t of_loop = 0;
    for (uint32_t i = ops.front(); i < o_.claims.end_of(ops.back()); ++i) {
      if (o_.spans[i].kind == SpanKind::kModule) return {};
      if (!o_.is_outermost(i)) continue;
      if (o_.is_node(i)) return {};
      ++turn.operators;
      const Tensor* of = o_.first_tensor(i);
      of_loop += is_of_loop(i) || of == nullptr || of->sizes.empty();
      turn.kept += static_cast<double>(o_.arithmetic_ns(i));
      i = o_.claims.end_of(i) - 1;
    }
    if (of_loop * 10 < turn.operators * 7) return {};
    return turn;
  }

  // A call of torch.optim that makes an optimizer, or its state; torch 1.13 makes that in step() itself.
  bool makes_optimizer(uint32_t i) const {
    const uint32_t parent = o_.spans[i].parent;
    const uint32_t function = o_.is_function(i) ? i : parent;
    if (function == kNoSpan || o_.text(function).find("torch/optim/") == std::string_view::npos) return false;
    if (function != i) return o_.text(i) == "aten::zeros_like";
    return function_name(o_.text(i)) == "__init__" || function_name(o_.text(i)) == "_init_group";
  }

  // The line on which the only optimizer of a class was made.
  std::string made_at(std::string_view optimizer) const {
    std::string file;
    for (const char each : optimizer) file.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(each))));
    file += ".py";
    std::set<uint32_t> places;
    for (const TimelineState& s : o_.timeline.states)
      if (s.kind == StateKind::kOptimizer && s.what.find(file) != s.what.npos) places.insert(s.place);
    return places.size() == 1 ? o_.view.where(*places.begin()) : std::string();
  }

  bool is_of_loop(uint32_t i) const {
    const std::string_view name = o_.text(i);
    if (name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_") || o_.is_of_engine(i)) return false;
    constexpr std::array<std::string_view, 22> kLoops = {
        "add_", "mul_", "sub_", "div_", "copy_", "lerp_", "addcmul_", "addcdiv_", "norm", "linalg_vector_norm",
        "pow",  "sum",  "mean", "abs",  "clone", "zero_", "clamp_",   "square",   "mul",  "add",
        "sub",  "std"};
    if (!name.starts_with("aten::") || std::ranges::find(kLoops, name.substr(6)) == kLoops.end()) return false;
    const Tensor* of = o_.first_tensor(i);
    return of != nullptr && o_.parameters.contains(of->sizes);
  }

  // The function of the program in which the loop is: further out than one that is called for each parameter.
  uint32_t loop_around(uint32_t i) {
    const uint32_t around = o_.program_around(i);
    if (around == kNoSpan || has_many_operators(around)) return around;
    const uint32_t outer = o_.spans[around].parent == kNoSpan ? kNoSpan : o_.program_around(o_.spans[around].parent);
    return outer == kNoSpan ? around : outer;
  }

  // Asked for each operator in it: a script has all of a run in one function.
  bool has_many_operators(uint32_t function) {
    const auto [known, is_new] = has_many_.try_emplace(function, false);
    if (!is_new) return known->second;
    uint32_t operators = 0;
    o_.each_operator(function, o_.claims.end_of(function), [&](uint32_t) { ++operators; });
    return known->second = operators > 8;
  }

  OperatorSubject& o_;
  std::unordered_map<uint32_t, bool> has_many_;
};

// An LSTMCell that is called for one position of a sequence after the other, though all positions are there.
class CellByCell {
 public:
  explicit CellByCell(OperatorSubject& o) : o_(o) {}

  // Without: what nn.LSTM takes, measured with torch 2.15 on one core, 8 to 64 rows, 32 to 512 features.
  void run() {
    constexpr double kPositionNs = 4'000, kFlopsPerNs = 85;
    std::map<uint32_t, Calls> functions;  // by the span of the program's function with the loop
    for (uint32_t i = 0; i < o_.count(); ++i)
      if (o_.is_operator(i) && o_.text(i) == "aten::lstm_cell" && o_.is_in_step(i)) add(i, functions);
    Group group;
    PlaceSums places;
    double flops = 0;
    size_t positions = 0, runs = 0;
    for (const auto& [function, calls] : functions) {
      if (calls.cells.size() < kFewestPositions || !o_.is_part_of_step(function) || has_other_work(calls)) continue;
      group.add(calls.cells.front(), calls.cells.back());
      for (const uint32_t cell : calls.cells) add_to(places[o_.row.place[cell]].ns, o_.spans[cell].ns());
      flops += calls.flops;
      positions += calls.cells.size();
      ++runs;
    }
    if (runs == 0) return;
    const size_t forward = group.stretches.size();
    o_.add_backward(group);
    join_nodes(group, forward);
    const double passes = group.stretches.size() > forward ? 3 : 1;  // a backward has twice the products of its forward
    const double without = passes * (static_cast<double>(positions) * kPositionNs + flops / kFlopsPerNs);
    o_.tell({.rule = "cell by cell",
             .what = "An LSTMCell is called for one position after the other, " + plural(positions / runs, "position") +
                     " each time: {}.",
             .evidence = "Nothing but the next part of the sequence is made between two of its calls. nn.LSTM would "
                         "take about " +
                         ns_text(o_.per_step(without)) + " (an estimate).",
             .where = o_.view.where(most_of(places)),
             .todo = "Give the whole sequence to nn.LSTM, which has the same weights."},
            group, 1, o_.per_step(without));
  }

 private:
  static constexpr size_t kFewestPositions = 16;
  struct Calls {
    std::vector<uint32_t> cells{};  // what the function calls, with a cell in it
    double flops = 0;
  };

  void add(uint32_t cell, std::map<uint32_t, Calls>& functions) const {
    const uint32_t function = o_.program_around(cell);
    if (function == kNoSpan) return;
    uint32_t call = cell;
    while (o_.spans[call].parent != function && o_.spans[call].parent != kNoSpan) call = o_.spans[call].parent;
    Calls& calls = functions[function];
    calls.cells.push_back(call);
    const Tensor *input = o_.tensor(cell, 0), *of_input = o_.tensor(cell, 2), *of_state = o_.tensor(cell, 3);
    if (input == nullptr || of_input == nullptr || of_state == nullptr || input->sizes.empty()) return;
    const double weights = static_cast<double>(elements_of(of_input->sizes) + elements_of(of_state->sizes));
    calls.flops += 2 * static_cast<double>(input->sizes.front()) * weights;
  }

  // The nodes of the backward, from this stretch on: what autograd's engine does between two of them is theirs, too.
  void join_nodes(Group& group, size_t from) const {
    constexpr std::ptrdiff_t kNear = 2;  // one that adds up a gradient may be between them
    std::vector<Group::Stretch> joined(group.stretches.begin(),
                                       group.stretches.begin() + static_cast<std::ptrdiff_t>(from));
    std::ptrdiff_t last = -kNear - 1;
    for (size_t s = from; s < group.stretches.size(); ++s) {
      const uint32_t node = group.stretches[s].first;
      const std::ptrdiff_t at = std::ranges::lower_bound(o_.nodes, node) - o_.nodes.begin();
      const bool is_next =
          s > from && at - last <= kNear && o_.claims.step_of(node) == o_.claims.step_of(joined.back().last);
      if (is_next)
        joined.back().last = node;
      else
        joined.push_back(group.stretches[s]);
      last = at;
    }
    group.stretches = std::move(joined);
  }

  // Between two calls something is computed, as where the next input depends on what came out.
  bool has_other_work(const Calls& calls) const {
    size_t others = 0;
    const uint32_t end = calls.cells.back();
    for (uint32_t i = calls.cells.front(); i < end; ++i) {
      if (std::ranges::binary_search(calls.cells, i)) {
        i = o_.claims.end_of(i) - 1;
        continue;
      }
      if (!o_.is_outermost(i)) continue;
      others += !takes_a_part(o_.text(i));
      i = o_.claims.end_of(i) - 1;
    }
    return others * 2 >= calls.cells.size();
  }

  OperatorSubject& o_;
};

// Parts of a tensor that are taken one by one: the backward of each makes a tensor of zeros, as large as the whole,
// around its part, and adds that to those of the others.
class PartByPart {
 public:
  explicit PartByPart(OperatorSubject& o) : o_(o) {}

  // Without: what one backward for all of them takes, which writes the tensor once.
  void run() {
    for (const uint32_t node : o_.nodes) add(node);
    for (const auto& [key, parts] : by_function_) {
      uint64_t tensors = 0;
      for (const auto& [step, times] : parts.times) {
        uint32_t most = 0;
        for (const auto& [at, count] : times) most = std::max(most, count);
        tensors += most;
      }
      const auto all = static_cast<uint64_t>(parts.group.stretches.size());
      if (tensors * 2 > all) continue;
      const double without =
          static_cast<double>(tensors) * 2 * parts.bytes / o_.bytes_per_ns + static_cast<double>(all) * kTensorAtOnceNs;
      const bool is_select = o_.view.text(key.name) == "aten::select";
      const std::string dimension = std::to_string(key.dimension);
      o_.tell(
          {.rule = "part by part",
           .what = "Parts of a tensor are taken one by one, and the backward of each makes a tensor as large as the "
                   "whole: {}.",
           .evidence = number_text(o_.view.per_step(all), "part") + " of " +
                       (tensors > parts.times.size() ? "tensors " : "a tensor ") + shape_text(key.sizes) + ".",
           .where = o_.view.where(most_of(parts.places)),
           .todo = is_select ? "Take all parts at once: x.unbind(" + dimension + ") instead of x[i]."
                             : "Take all parts at once: x.split(size, " + dimension + ") instead of x[i:j]."},
          parts.group, 1, o_.per_step(without));
    }
  }

 private:
  struct Key {
    uint32_t function, name;  // the program's, and that of the operator
    int64_t dimension;
    Shape sizes;
    auto operator<=>(const Key&) const = default;
  };
  struct Parts {
    Group group{};  // nodes
    PlaceSums places{};
    std::map<uint32_t, std::map<int64_t, uint32_t>> times{};  // by step, and by where a part begins
    double bytes = 0;                                         // of a tensor
  };

  void add(uint32_t node) {
    const uint32_t taken = o_.forward[node];
    if (taken == kNoSpan || !o_.is_outermost(taken) || !o_.is_in_step(node) || o_.claims.is_claimed(node)) return;
    if (!takes_a_part(o_.text(taken))) return;
    const Tensor* whole = o_.tensor(taken, 0);
    if (whole == nullptr || o_.inputs(taken).size() < 3) return;
    const uint32_t function = function_around(taken);
    if (function == kNoSpan || !o_.is_program(function)) return;  // what torch's own modules do nobody changes
    const int64_t dimension = o_.integer(taken, 1, -1), at = o_.integer(taken, 2, 0);
    if (dimension < 0 || dimension >= static_cast<int64_t>(whole->sizes.size())) return;
    const int64_t length = whole->sizes[static_cast<size_t>(dimension)];
    Parts& parts = by_function_[{o_.spans[function].name, o_.spans[taken].name, dimension, whole->sizes}];
    parts.bytes = bytes_of(*whole);
    parts.group.add(node);
    ++parts.times[o_.claims.step_of(node)][at < 0 ? at + length : at];
    add_to(parts.places[o_.row.place[taken]].ns, o_.spans[node].ns());
  }

  uint32_t function_around(uint32_t i) const {
    for (i = o_.spans[i].parent; i != kNoSpan && !o_.is_function(i);) i = o_.spans[i].parent;
    return i;
  }

  OperatorSubject& o_;
  std::map<Key, Parts> by_function_;
};

}  // namespace

void find_part_by_part(OperatorSubject& subject) { PartByPart(subject).run(); }
void find_cells(OperatorSubject& subject) { CellByCell(subject).run(); }
void find_optimizers(OperatorSubject& subject) {
  ParameterLoops loops(subject);
  loops.made_anew();
  loops.optimizers();
}
void find_parameter_loops(OperatorSubject& subject) { ParameterLoops(subject).others(); }

}  // namespace torchprof::formats
