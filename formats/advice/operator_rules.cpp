#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "formats/advice/claims.h"
#include "formats/advice/operator_kinds.h"
#include "formats/advice/rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/trace/names.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kLeastPart = 33;          // a finding costs a 33rd of a step
constexpr double kFewestTensors = 20;       // of a loop over parameters, in a step
constexpr double kPlainBytesPerNs = 8;      // of memory, where a run does not show more
constexpr int64_t kTensorAtOnceNs = 250;    // for each tensor of an operator that takes all at once
constexpr uint8_t kFloat = 6, kDouble = 7;  // c10::ScalarType

constexpr int64_t kLargeTable = 100'000;  // elements of an embedding
constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";

using Shape = std::vector<int64_t>;

int64_t elements_of(const Shape& sizes) {
  double n = 1;
  for (const int64_t size : sizes) n *= static_cast<double>(std::max<int64_t>(0, size));
  return n < 9e15 ? static_cast<int64_t>(n) : 0;
}

std::string shape_text(const Shape& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

// "name" of "path(line): name".
std::string_view function_name(std::string_view text) {
  const size_t at = text.rfind("): ");
  return at == text.npos ? text : text.substr(at + 3);
}
// Whether it is a function of a file: "path(line): name", where the path is `file` or ends with "/" and it.
bool is_in_file(std::string_view text, std::string_view file) {
  const size_t end = text.rfind("): ");
  if (end == text.npos) return false;
  const size_t open = text.rfind('(', end);
  if (open == text.npos || !text.substr(0, open).ends_with(file)) return false;
  return open == file.size() || text[open - file.size() - 1] == '/';
}

class OperatorRules {
 public:
  OperatorRules(const Subject& subject, Findings& findings)
      : v_(subject.view),
        t_(v_.timeline()),
        row_(v_.rows()[v_.main()]),
        spans_(t_.rows[v_.main()].spans),
        findings_(findings),
        claims_(v_) {}

  Claimed run() {
    look();
    profiler();
    // What encloses operators, and so names the cause, comes before what they are.
    optimizers();
    known_functions();
    anomalies();
    finite_checks();
    items();
    parameter_loops();
    second_passes();
    attention();
    embeddings();
    unused_positions();
    sparse_products();
    doubles();
    others();
    return claims_.take();
  }

 private:
  // What the rules look at

  std::string_view text(uint32_t i) const { return v_.text(spans_[i].name); }
  bool is_operator(uint32_t i) const { return spans_[i].kind == SpanKind::kOperator; }
  bool is_function(uint32_t i) const { return spans_[i].kind == SpanKind::kPython; }
  bool is_program(uint32_t i) const { return is_function(i) && t_.is_program(spans_[i].name); }
  bool is_outermost(uint32_t i) const {
    return is_operator(i) && (spans_[i].parent == kNoSpan || !is_operator(spans_[i].parent));
  }
  uint32_t count() const { return static_cast<uint32_t>(spans_.size()); }
  bool is_in_step(uint32_t i) const { return claims_.step_of(i) != Claims::kNoStep; }
  // A part of a step, not what is around it.
  bool is_part_of_step(uint32_t i) const {
    if (!is_in_step(i)) return false;
    const StepSpan& step = v_.steps()[claims_.step_of(i)];
    return spans_[i].end <= step.end && spans_[i].ns() < (step.end - step.begin) / 10 * 9;
  }

  // The innermost function of the program around it, or itself.
  uint32_t program_around(uint32_t i) const {
    while (i != kNoSpan && !is_program(i)) i = spans_[i].parent;
    return i;
  }

  const std::vector<Input>& inputs(uint32_t i) const { return t_.inputs(spans_[i].inputs); }
  const Tensor* tensor(uint32_t i, size_t number) const {
    const std::vector<Input>& all = inputs(i);
    if (number >= all.size() || all[number].kind != Input::Kind::kTensor || all[number].tensors.empty()) return nullptr;
    const Tensor& tensor = all[number].tensors[0];
    return tensor.is_readable ? &tensor : nullptr;
  }
  // The first tensor, or the first of a list.
  const Tensor* first_tensor(uint32_t i) const {
    for (const Input& input : inputs(i))
      if (!input.tensors.empty() && input.tensors[0].is_readable) return &input.tensors[0];
    return nullptr;
  }
  int64_t integer(uint32_t i, size_t number, int64_t otherwise) const {
    const std::vector<Input>& all = inputs(i);
    return number < all.size() && all[number].integers.size() == 1 ? all[number].integers[0] : otherwise;
  }
  double bytes_of(uint32_t i) const {
    double bytes = 0;
    for (const Input& input : inputs(i))
      for (const Tensor& each : input.tensors)
        bytes += static_cast<double>(elements_of(each.sizes)) * element_size(each.type);
    return bytes;
  }
  // What an operator on each element takes at least, at this run's speed of memory.
  int64_t arithmetic_ns(uint32_t i) const {
    return std::min(spans_[i].ns(), static_cast<int64_t>(bytes_of(i) / bytes_per_ns_));
  }

  void look() {
    forward_.resize(count(), kNoSpan);
    top_.resize(count(), kNoSpan);
    std::unordered_map<uint32_t, uint32_t> last;  // forward operator, by its number
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_operator(i)) continue;
      const uint32_t parent = spans_[i].parent;
      top_[i] = parent != kNoSpan && is_operator(parent) ? top_[parent] : i;
      const std::string_view name = text(i);
      if (name.starts_with(kEvaluateFunction)) nodes_.push_back(i);
      if (name == kAccumulate && is_in_step(i)) {
        ++accumulated_;
        if (const Tensor* grad = first_tensor(i)) {
          ++parameters_[grad->sizes];
          ++parameter_types_[grad->type];
        }
      }
      if (is_elementwise(name)) {
        const double bytes = bytes_of(i);
        if (bytes >= 4e6 && spans_[i].ns() > 0)
          bytes_per_ns_ = std::clamp(bytes / static_cast<double>(spans_[i].ns()), bytes_per_ns_, 100.0);
      }
      const uint32_t sequence = spans_[i].sequence;
      if (sequence == 0) continue;
      // A node, or its evaluate_function. What such a function calls has numbers of its own, with create_graph=True.
      const bool is_node = name.starts_with(kEvaluateFunction) ||
                           (parent != kNoSpan && is_operator(parent) && text(parent).starts_with(kEvaluateFunction));
      if (!is_node) {
        last[sequence] = i;
      } else if (const auto found = last.find(sequence); found != last.end()) {
        forward_[top_[i]] = found->second;
        has_backward_.insert(found->second);
      }
    }
    const auto steps = static_cast<double>(v_.steps().size());
    for (auto& [shape, n] : parameters_) n = static_cast<uint64_t>(std::lround(static_cast<double>(n) / steps));
    parameters_per_step_ = static_cast<double>(accumulated_) / steps;
  }

  // Whether it runs in the engine of autograd.
  bool is_of_engine(uint32_t i) const { return text(top_[i]).starts_with(kEvaluateFunction); }

  // Outermost operators in [from, to) that nobody has claimed, without those of the engine.
  template <class F>
  void each_operator(uint32_t from, uint32_t to, F f) const {
    for (uint32_t i = from; i < to; ++i)
      if (is_outermost(i)) {
        if (!claims_.is_claimed(i) && !text(i).starts_with(kEvaluateFunction)) f(i);
        i = claims_.end_of(i) - 1;
      }
  }

  // Adds the nodes of the backward that belong to what is between two spans.
  void add_backward(Group& group) const {
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    for (const Group::Stretch& s : group.stretches) ranges.emplace_back(s.first, claims_.end_of(s.last));
    std::ranges::sort(ranges);
    for (const uint32_t node : nodes_) {
      const uint32_t forward = forward_[node];
      if (forward == kNoSpan || claims_.is_claimed(node)) continue;
      auto after = std::ranges::upper_bound(ranges, std::pair(forward, UINT32_MAX));
      if (after == ranges.begin()) continue;
      if (forward < std::prev(after)->second) group.add(node);
    }
  }

  // Claims and tells if it is worth it. `f` has no cost yet.
  bool tell(Finding f, const Group& group, double part = 1, int64_t without = 0, int64_t least_part = kLeastPart) {
    if (group.empty()) return false;
    const GroupCost cost = claims_.cost_of(group);
    f.cost_ns = cost.typical(part) - without;
    if (!is_worth(f.cost_ns, v_, least_part)) return false;
    if (f.where.empty()) f.where = v_.where(most_of(cost.places));
    if (f.evidence.empty() && cost.steps_with * 10 < cost.by_step.size() * 9)
      f.evidence = "In " + std::to_string(cost.steps_with) + " of " + plural(cost.by_step.size(), "step") + ".";
    claims_.claim(group);
    findings_.push_back(std::move(f));
    return true;
  }

  // Per step: a sum over all steps.
  int64_t per_step(double ns) const { return static_cast<int64_t>(ns / static_cast<double>(v_.steps().size())); }

  // Optimizers that update one tensor after the other.
  //
  // Without: what their operators read at the speed of memory, and a little for each tensor (kTensorAtOnceNs).

  void optimizers() {
    struct Kind {
      Group group{};
      double kept = 0;
      uint64_t operators = 0, tensors = 0, calls = 0;
      std::string_view name;
      bool is_of_torch = false;
    };
    std::map<uint32_t, Kind> kinds;  // by name
    for (uint32_t i = 0; i < count(); ++i) {
      if (spans_[i].kind != SpanKind::kAnnotation || !is_in_step(i) || claims_.is_claimed(i)) continue;
      const std::string_view name = text(i);
      constexpr std::string_view kBegin = "Optimizer.step#";
      if (!name.starts_with(kBegin)) continue;
      std::string_view optimizer = name.substr(kBegin.size());
      if (optimizer.ends_with(".step")) optimizer.remove_suffix(5);
      std::map<uint32_t, uint64_t> names;
      double kept = 0;
      uint64_t operators = 0;
      bool is_single = true, is_of_torch = false;
      for (uint32_t j = i + 1; j < claims_.end_of(i); ++j) {
        if (is_function(j) && text(j).find("torch/optim/") != text(j).npos &&
            !is_in_file(text(j), "torch/optim/optimizer.py"))
          is_of_torch = true;
        if (!is_outermost(j)) continue;
        const std::string_view op = text(j);
        // All at once already; or a closure that computes the loss is called in it.
        if (op.starts_with("aten::_foreach_") || op.starts_with("aten::_fused_") || op.starts_with(kEvaluateFunction)) {
          is_single = false;
          break;
        }
        ++operators;
        ++names[spans_[j].name];
        kept += static_cast<double>(arithmetic_ns(j));
        j = claims_.end_of(j) - 1;
      }
      if (!is_single || operators == 0) continue;
      std::map<uint64_t, uint64_t> times;  // how many names come so often
      for (const auto& [op, n] : names) ++times[n];
      const auto most = std::ranges::max_element(
          times, {}, [](const auto& each) { return std::pair(each.first >= 2 ? each.second : 0, each.first); });
      Kind& kind = kinds[spans_[i].name];
      kind.name = optimizer;
      kind.group.add(i);
      kind.operators += operators;
      kind.tensors += most->first;
      // Measured with 200 and 600 tensors, torch 2.15: what takes all at once still makes lists of them, 1 us for each
      // of SGD, 4 us of Adam; foreach=True alone, which calls the same operators from C++, two fifths of a loop.
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
      std::string todo =
          "Update them at once with torch._foreach_ functions, or with an optimizer of torch "
          "(fused=True).";
      if (kind.is_of_torch || has_fused)
        todo = has_fused ? "Where the optimizer is made, pass fused=True, or foreach=True where torch cannot."
                         : "Where the optimizer is made, pass foreach=True.";
      tell({.rule = "optimizer",
            .what = std::string(kind.name) + " updates " + plural(tensors, "tensor") +
                    " one by one; to call so many "
                    "operators takes {}.",
            .evidence = number_text(static_cast<double>(kind.operators) / static_cast<double>(kind.calls), "operator") +
                        " in each call of step(). To read and write what they work on would take " +
                        ns_text(static_cast<int64_t>(kind.kept) / static_cast<int64_t>(kind.calls)) + ".",
            .where = made_at(kind.name),
            .todo = std::move(todo)},
           kind.group, has_fused || !kind.is_of_torch ? 1 : 0.6, per_step(kind.kept));
    }
  }

  // The line on which the only optimizer of a class was made.
  std::string made_at(std::string_view optimizer) const {
    std::string file;
    for (const char each : optimizer) file.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(each))));
    file += ".py";
    std::set<uint32_t> places;
    for (const TimelineState& s : t_.states)
      if (s.kind == StateKind::kOptimizer && s.what.find(file) != s.what.npos) places.insert(s.place);
    return places.size() == 1 ? v_.where(*places.begin()) : std::string();
  }

  // torch's profiler is on
  //
  // It costs as much again as calling operators and Python's functions: 8 ms of a step of 15 ms with 2,300 operators
  // (torch 2.x, all options), between 10 and 40 % with fewer options.

  void profiler() {
    constexpr int64_t kShort = 20'000;
    const TimelineState* longest = nullptr;
    int64_t all = 0;
    for (const TimelineState& s : t_.states) {
      if (s.kind != StateKind::kProfiler || s.end <= s.begin) continue;
      add_to(all, v_.in_steps(s.begin, s.end));
      if (longest == nullptr || s.end - s.begin > longest->end - longest->begin) longest = &s;
    }
    if (longest == nullptr || all * 4 < v_.all_ns()) return;  // a schedule profiles a few steps
    int64_t calling = 0;
    for (uint32_t i = 0; i < count(); ++i) {
      if (row_.own[i] == 0 || !is_in_step(i) || row_.activity[i] == Activity::kLoading) continue;
      add_to(calling, is_operator(i) ? std::min(row_.own[i], kShort) : row_.own[i]);
    }
    const double part = static_cast<double>(all) / static_cast<double>(v_.all_ns());
    const int64_t cost = per_step(static_cast<double>(calling) / 2 * part);
    if (!is_worth(cost, v_, kLeastPart)) return;
    findings_.push_back(
        {.rule = "profiler",
         .cost_ns = cost,
         .what = "torch.profiler is on, in " + percent_text(all, v_.all_ns()) + " of the time of steps: about {}.",
         .evidence = "An estimate: half of what Python and short operators take while it records.",
         .where = v_.where(longest->place),
         .todo = "Take it out, or give it a schedule(wait, warmup, active) that records a few steps."});
  }

  // Functions of libraries that say what their operators are for

  struct Known {
    std::string_view rule, file, name;  // an empty name: any function of the file
    std::string_view what, todo;
  };

  void known_functions() {
    constexpr auto kKnown = std::to_array<Known>({
        {"printing", "torch/_tensor_str.py", "", "Whole tensors are turned into text, to be printed or logged: {}.",
         "Print or log numbers (loss.item()) and shapes instead of whole tensors, and less often; format only what the "
         "log's level lets through."},
        {"copying", "copy.py", "deepcopy", "copy.deepcopy() copies a model, its state or other objects: {}.",
         "Copy less often, or only values, into tensors that exist already (torch._foreach_copy_)."},
        {"checking", "torch/autograd/gradcheck.py", "", "Gradients are compared with numerical ones (gradcheck): {}.",
         "Do it in a test, not in training."},
        {"checking", "torch/testing/_comparison.py", "", "torch.testing compares tensors in each step: {}.",
         "Do it in a test, not in training."},
        {"jacobian", "torch/autograd/functional.py", "",
         "torch.autograd.functional runs a backward for each element of the result: {}.",
         "Pass vectorize=True, or use torch.func.jacrev, jacfwd or hessian."},
        {"counting parameters", "torch/nn/utils/convert_parameters.py", "",
         "All parameters are joined into one vector, or taken out of it: {}.",
         "Do it once and let the parameters be views of the vector, or use torch._foreach_ functions."},
    });
    std::array<Group, kKnown.size()> groups;
    std::array<uint64_t, kKnown.size()> calls{};
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_function(i) || !is_in_step(i)) continue;
      const std::string_view name = text(i);
      for (size_t k = 0; k < kKnown.size(); ++k) {
        if (!is_in_file(name, kKnown[k].file)) continue;
        if (!kKnown[k].name.empty() && function_name(name) != kKnown[k].name) continue;
        // Tensor.__repr__ and __format__ do nothing else.
        uint32_t outer = i;
        const uint32_t parent = spans_[i].parent;
        if (parent != kNoSpan && is_function(parent) && is_in_file(text(parent), "torch/_tensor.py")) outer = parent;
        groups[k].add(outer);
        ++calls[k];
        i = claims_.end_of(i) - 1;
        break;
      }
    }
    for (size_t k = 0; k < kKnown.size(); ++k) {
      if (groups[k].empty()) continue;
      tell({.rule = kKnown[k].rule,
            .what = std::string(kKnown[k].what),
            .evidence = "It is called " + number_text(v_.per_step(calls[k]), "time") + ".",
            .todo = std::string(kKnown[k].todo)},
           groups[k]);
    }
  }

  // Anomaly detection: the engine looks for NaN in what each node gives, and each forward operator keeps its stack.

  void anomalies() {
    Group group;
    uint64_t nodes = 0, checked = 0;
    for (const uint32_t node : nodes_) {
      if (!is_in_step(node) || text(node).ends_with(kAccumulate)) continue;
      ++nodes;
      bool is_checked = false;
      for (uint32_t i = node + 1; i < claims_.end_of(node); i = claims_.end_of(i)) {
        if (text(i) == "aten::isnan") is_checked = true;
        if (is_checked && is_operator(i)) group.add(i);
      }
      checked += is_checked;
    }
    if (checked * 2 < nodes || checked == 0) return;
    for (uint32_t i = 0; i < count(); ++i) {
      const uint32_t parent = spans_[i].parent;
      if (!is_function(i) || parent == kNoSpan || !is_operator(parent) || !is_in_step(i)) continue;
      if (text(i).find("traceback.py(") == std::string_view::npos) continue;
      group.add(i);
      i = claims_.end_of(i) - 1;
    }
    tell({.rule = "anomaly detection",
          .what = "Anomaly detection is on: it looks for NaN after each part of the backward, for {}.",
          .evidence = number_text(v_.per_step(checked), "check") + " in the backward.",
          .where = anomalies_at(),
          .todo = "Take out torch.autograd.set_detect_anomaly(True) and detect_anomaly() when the cause is found."},
         group);
  }

  std::string anomalies_at() const {
    for (const TimelineState& s : t_.states)
      if (s.kind == StateKind::kAnomalies) return v_.where(s.place);
    return {};
  }

  // Checks for values that are not finite, each of which is read

  static bool begins_check(std::string_view name) {
    return name == "aten::isnan" || name == "aten::isinf" || name == "aten::isfinite" || name == "aten::isneginf" ||
           name == "aten::isposinf";
  }
  static bool is_of_check(std::string_view name) {
    constexpr std::array<std::string_view, 17> kOf = {
        "aten::any",         "aten::all",         "aten::abs",        "aten::max",        "aten::min",    "aten::sum",
        "aten::bitwise_not", "aten::logical_not", "aten::amax",       "aten::eq",         "aten::ne",     "aten::lt",
        "aten::gt",          "aten::logical_and", "aten::logical_or", "aten::bitwise_or", "aten::aminmax"};
    return begins_check(name) || reads_value(name) || std::ranges::find(kOf, name) != kOf.end();
  }

  // Functions that only check, and rows of operators in others that do.
  void finite_checks() {
    Group group;
    uint64_t reads = 0, checks = 0;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_in_step(i)) continue;
      if (is_program(i) && is_part_of_step(i)) {
        bool is_check = false, is_only = true;
        uint64_t read = 0;
        uint32_t n = 0;
        // Long ones are no function that checks one thing.
        for (uint32_t j = i + 1; j < claims_.end_of(i) && is_only && n < 1000; ++j) {
          if (spans_[j].kind == SpanKind::kModule) is_only = false;
          if (!is_outermost(j)) continue;
          ++n;
          is_check = is_check || begins_check(text(j));
          read += reads_value(text(j));
          is_only = is_only && is_of_check(text(j));
          j = claims_.end_of(j) - 1;
        }
        if (is_check && is_only && read != 0) {
          group.add(i);
          reads += read;
          ++checks;
          i = claims_.end_of(i) - 1;
        }
        continue;
      }
      if (!is_outermost(i) || !begins_check(text(i))) continue;
      // From here on, as long as operators of the same function belong to it, to the last one that reads.
      uint32_t last = kNoSpan;
      for (uint32_t j = i; j < count() && spans_[j].parent == spans_[i].parent; j = claims_.end_of(j)) {
        if (is_operator(j) && !is_of_check(text(j))) break;
        if (is_function(j) && is_program(j)) break;
        if (!is_operator(j)) continue;
        if (!reads_value(text(j))) continue;
        last = j;
        ++reads;
        break;
      }
      if (last == kNoSpan) continue;
      group.add(i, last);
      ++checks;
      i = claims_.end_of(last) - 1;
    }
    tell(
        {.rule = "checking",
         .what = "Tensors are checked to be finite, and each result is read: {}.",
         .evidence = number_text(v_.per_step(checks), "check") + ", which read " +
                     number_text(v_.per_step(reads), "value") + " (item(), bool()).",
         .where = line_of(group),
         .todo = "Check the loss alone, or less often, or behind a flag; norms of many tensors at once are finite only "
                 "if all are (torch._foreach_norm)."},
        group);
  }

  // The line on which operators of the group take most time.
  std::string line_of(const Group& group) const {
    PlaceSums places;
    for (const Group::Stretch& s : group.stretches)
      for (uint32_t i = s.first; i < claims_.end_of(s.last); ++i)
        if (is_outermost(i)) add_to(places[row_.place[i]].ns, spans_[i].ns());
    return v_.where(most_of(places));
  }

  // Values that are read one by one

  // Without: all of it, from the first to the last.
  void items() {
    if (v_.has_gpu()) return;  // they wait for it: "sync"
    struct Reads {
      uint32_t first = kNoSpan, last = kNoSpan;
      uint64_t reads = 0;
    };
    constexpr uint64_t kMany = 20;  // of one call of a function
    std::unordered_map<uint32_t, Reads> by_function;
    std::vector<uint32_t> functions;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !reads_value(text(i)) || claims_.is_claimed(i) || !is_in_step(i)) continue;
      // Of a step, if the function is around many.
      uint32_t around = program_around(i);
      if (around == kNoSpan) continue;
      auto [found, is_new] = by_function.try_emplace(around);
      Reads& reads = found->second;
      if (!is_new && claims_.step_of(reads.last) != claims_.step_of(i)) {
        end_reads(reads.first, reads.last, reads.reads, kMany);
        reads = {};
      }
      if (is_new) functions.push_back(around);
      if (reads.first == kNoSpan) reads.first = i;
      reads.last = i;
      ++reads.reads;
    }
    for (const uint32_t each : functions) {
      const Reads& reads = by_function[each];
      end_reads(reads.first, reads.last, reads.reads, kMany);
    }
    for (auto& [place, each] : reads_) {
      tell(
          {.rule = "reading values",
           .what = "Elements of tensors are read one by one, with item(): {}.",
           .evidence = number_text(v_.per_step(each.reads), "value") + ", in " +
                       number_text(v_.per_step(each.operators), "operator") + ".",
           .where = v_.where(place),
           .todo = "Compute with whole tensors and read the result once: (a == b).sum().item(), or tolist() before the "
                   "loop."},
          each.group);
    }
  }

  struct ReadGroup {
    Group group{};
    uint64_t reads = 0, operators = 0;
  };

  void end_reads(uint32_t first, uint32_t last, uint64_t reads, uint64_t many) {
    if (first == kNoSpan || reads < many) return;
    uint64_t operators = 0, short_ones = 0;
    bool has_module = false;
    // What makes the first value stands before it.
    while (first > 0 && spans_[first - 1].parent == spans_[first].parent && is_outermost(first - 1) &&
           spans_[first - 1].ns() < 15'000 && claims_.step_of(first - 1) == claims_.step_of(first) &&
           spans_[first].begin - spans_[first - 1].end < 5'000 && claims_.end_of(first - 1) == first)
      --first;
    for (uint32_t i = first; i < claims_.end_of(last); ++i) {
      has_module = has_module || spans_[i].kind == SpanKind::kModule;
      if (!is_outermost(i)) continue;
      has_module = has_module || text(i).starts_with(kEvaluateFunction);
      ++operators;
      short_ones += spans_[i].ns() < 15'000;
      i = claims_.end_of(i) - 1;
    }
    // A loop of steps reads a loss each; a loop over elements has a few short operators for each.
    if (has_module || reads * 8 < operators || short_ones * 10 < operators * 8) return;
    ReadGroup& into = reads_[row_.place[last]];
    into.group.add(first, last);
    into.reads += reads;
    into.operators += operators;
  }

  // Loops over parameters that are no optimizer's: averages, norms, clipping, copies

  // Without: as of optimizers.
  void parameter_loops() {
    if (v_.has_gpu() || parameters_per_step_ < kFewestTensors) return;
    const auto fewest = static_cast<uint64_t>(parameters_per_step_ * 0.6);
    struct Loop {
      Group group{};
      double kept = 0;
      uint64_t operators = 0, calls = 0;
      uint32_t name = 0;
    };
    std::map<std::pair<uint32_t, uint32_t>, Loop> loops;  // by function and most frequent operator
    // Operators on what has the shape of a parameter, by the function of the program around them and the step.
    std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, std::vector<uint32_t>>> found;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i)) continue;
      if (is_in_step(i) && !claims_.is_claimed(i) && is_of_loop(i))
        found[{loop_around(i), claims_.step_of(i)}][spans_[i].name].push_back(i);
      i = claims_.end_of(i) - 1;
    }
    for (const auto& [key, names] : found) {
      const auto most = std::ranges::max_element(names, {}, [](const auto& each) { return each.second.size(); });
      const std::vector<uint32_t>& ops = most->second;
      if (ops.size() < fewest) continue;
      const uint32_t first = ops.front(), last = ops.back();
      uint64_t all = 0, of_loop = 0;
      double kept = static_cast<double>(ops.size()) * kTensorAtOnceNs * 2;
      bool has_module = false;
      for (uint32_t i = first; i < claims_.end_of(last); ++i) {
        has_module = has_module || spans_[i].kind == SpanKind::kModule;
        if (!is_outermost(i)) continue;
        has_module = has_module || text(i).starts_with(kEvaluateFunction);
        ++all;
        const Tensor* of = first_tensor(i);
        of_loop += is_of_loop(i) || of == nullptr || of->sizes.empty();
        kept += static_cast<double>(arithmetic_ns(i));
        i = claims_.end_of(i) - 1;
      }
      if (has_module || of_loop * 10 < all * 7) continue;
      const uint32_t function = key.first == kNoSpan ? 0 : spans_[key.first].name;
      Loop& loop = loops[{function, most->first}];
      loop.group.add(first, last);
      loop.kept += kept;
      loop.operators += all;
      loop.name = most->first;
      ++loop.calls;
    }
    for (auto& [key, loop] : loops) {
      const std::string_view name = v_.text(loop.name);
      std::string bare(name.substr(name.rfind(':') + 1));
      if (bare == "linalg_vector_norm") bare = "norm";
      const std::string at_once = "torch._foreach_" + bare;
      const bool is_norm = bare.find("norm") != bare.npos;
      tell({.rule = "parameter loop",
            .what = "A loop calls operators for each parameter, " + std::string(name) + " and others: {}.",
            .evidence = number_text(static_cast<double>(loop.operators) / static_cast<double>(loop.calls), "operator") +
                        " in a loop; the model has " +
                        plural(static_cast<uint64_t>(std::llround(parameters_per_step_)), "parameter") + ".",
            .where = line_of(loop.group),
            .todo = is_norm ? "Do it for all at once: torch.nn.utils.clip_grad_norm_(..., foreach=True), or "
                              "torch._foreach_norm."
                            : "Do it for all at once: " + at_once + "(list of tensors, ...)."},
           loop.group, 1, per_step(loop.kept));
    }
  }

  bool is_of_loop(uint32_t i) const {
    const std::string_view name = text(i);
    if (name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_") || is_of_engine(i)) return false;
    constexpr std::array<std::string_view, 22> kLoops = {
        "add_", "mul_", "sub_", "div_", "copy_", "lerp_", "addcmul_", "addcdiv_", "norm", "linalg_vector_norm",
        "pow",  "sum",  "mean", "abs",  "clone", "zero_", "clamp_",   "square",   "mul",  "add",
        "sub",  "std"};
    if (!name.starts_with("aten::") || std::ranges::find(kLoops, name.substr(6)) == kLoops.end()) return false;
    const Tensor* of = first_tensor(i);
    return of != nullptr && parameters_.contains(of->sizes);
  }

  // The function of the program in which the loop is: further out than one that is called for each parameter.
  uint32_t loop_around(uint32_t i) const {
    const uint32_t around = program_around(i);
    if (around == kNoSpan) return kNoSpan;
    uint32_t operators = 0;
    each_operator(around, claims_.end_of(around), [&](uint32_t) { ++operators; });
    if (operators > 8) return around;
    const uint32_t outer = spans_[around].parent == kNoSpan ? kNoSpan : program_around(spans_[around].parent);
    return outer == kNoSpan ? around : outer;
  }

  // The same model forward or backward once more than a step needs

  struct Pass {  // of autograd's engine
    uint32_t span;
    bool is_grad = false;  // torch.autograd.grad(): gradients are results
    std::vector<uint32_t> nodes{};
    std::vector<uint32_t> sequences{};
    std::set<uint32_t> roots{};  // calls of modules whose operators it goes back through
  };

  uint32_t root_module(uint32_t i) const {
    uint32_t root = kNoSpan;
    for (; i != kNoSpan; i = spans_[i].parent)
      if (spans_[i].kind == SpanKind::kModule && !text(i).starts_with(kOptimizerPrefix)) root = i;
    return root;
  }

  std::vector<std::vector<Pass>> passes_by_step() const {
    std::vector<std::vector<Pass>> steps(v_.steps().size());
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_function(i) || !is_in_step(i) || !is_in_file(text(i), "torch/autograd/__init__.py")) continue;
      const std::string_view name = function_name(text(i));
      if (name != "backward" && name != "grad") continue;
      Pass pass{.span = i, .is_grad = name == "grad"};
      const auto first = std::ranges::lower_bound(nodes_, i);
      for (auto node = first; node != nodes_.end() && *node < claims_.end_of(i); ++node) {
        if (text(*node).ends_with(kAccumulate)) continue;
        pass.nodes.push_back(*node);
        const uint32_t forward = forward_[*node];
        if (forward == kNoSpan) continue;
        pass.sequences.push_back(spans_[forward].sequence);
        if (const uint32_t root = root_module(forward); root != kNoSpan) pass.roots.insert(root);
      }
      if (!pass.nodes.empty()) steps[claims_.step_of(i)].push_back(std::move(pass));
      i = claims_.end_of(i) - 1;
    }
    return steps;
  }

  // Whether a backward goes through what another one did, so that its results are needed (create_graph).
  bool uses(const Pass& later, const Pass& earlier) const {
    return std::ranges::any_of(later.nodes, [&](uint32_t node) {
      return forward_[node] != kNoSpan && forward_[node] >= earlier.span &&
             forward_[node] < claims_.end_of(earlier.span);
    });
  }

  void second_passes() {
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
            if (forward_[node] != kNoSpan && before.contains(spans_[forward_[node]].sequence)) again.add(node);
        }
      }
      if (unused_calls[s] != kNoSpan) {
        ++with_unused;
        unused.add(unused_calls[s]);
        unused_name = text(unused_calls[s]);
      }
    }
    constexpr int64_t kLarge = 8;  // it may be meant, so small ones are not told
    const auto in_most = [&](size_t n) { return n * 10 >= steps.size() * 8 && n > 0; };
    if (in_most(with_grads))
      tell({.rule = "second backward",
            .what = "A second forward and backward of the same model run in each step, for torch.autograd.grad(): {}.",
            .evidence = "backward() goes through as many operators again, and uses nothing of it.",
            .where = line_of_pass(grads),
            .todo = "Take the gradients from the backward that is there (p.grad after backward()), or do this in some "
                    "steps only."},
           grads, 1, 0, kLarge);
    if (in_most(with_again))
      tell({.rule = "second backward",
            .what = "backward() goes twice through the same graph in each step (retain_graph=True): {}.",
            .evidence = "The second one repeats most of the first one's operators.",
            .todo = "Add the losses and call backward() once, if their gradients need not be apart."},
           again, 1, 0, kLarge);
    if (in_most(with_unused))
      tell({.rule = "second forward",
            .what = unused_name + " is called twice in each step on inputs of the same shape; one of the calls has no "
                                  "backward: {}.",
            .evidence = {},
            .todo = "If both get the same batch, keep what the other call gave (detach() it)."},
           unused, 1, 0, kLarge);
  }

  std::string line_of_pass(const Group& group) const {
    PlaceSums places;
    for (const Group::Stretch& s : group.stretches)
      for (uint32_t i = s.first; i < claims_.end_of(s.last); ++i)
        if (is_function(i) && is_in_file(text(i), "torch/autograd/__init__.py") && function_name(text(i)) == "grad")
          add_to(places[row_.place[i]].ns, spans_[i].ns());
    return v_.where(most_of(places));
  }

  // As many nodes of the same kinds, give or take a quarter.
  bool are_alike(const Pass& a, const Pass& b) const {
    std::map<uint32_t, int64_t> kinds;
    for (const uint32_t node : a.nodes) ++kinds[spans_[node].name];
    for (const uint32_t node : b.nodes) --kinds[spans_[node].name];
    int64_t different = 0;
    for (const auto& [kind, n] : kinds) different += std::abs(n);
    return static_cast<size_t>(different) * 4 <= a.nodes.size() + b.nodes.size();
  }

  // A pass with the forward that only it uses: the program's function around all of it, if there is nothing else in it.
  void add_pass(const Pass& pass, const Pass& other, Group& group) const {
    int64_t ns = spans_[pass.span].ns();
    std::vector<uint32_t> parts{pass.span};
    for (const uint32_t root : pass.roots) {
      if (other.roots.contains(root) || claims_.step_of(root) != claims_.step_of(pass.span)) continue;
      parts.push_back(root);
      add_to(ns, spans_[root].ns());
    }
    const uint32_t around = program_around(pass.span);
    const bool has_all = around != kNoSpan && is_part_of_step(around) && std::ranges::all_of(parts, [&](uint32_t i) {
                           return i >= around && i < claims_.end_of(around);
                         });
    if (has_all && ns * 10 >= spans_[around].ns() * 6 &&
        (other.span < around || other.span >= claims_.end_of(around))) {
      group.add(around);
      return;
    }
    for (const uint32_t part : parts) group.add(part);
  }

  // In each step the one call of a root module through which no backward goes, where there is one other call of the
  // same module on the same shapes through which one goes; kNoSpan: there is no such pair.
  std::vector<uint32_t> calls_without_backward(const std::vector<std::vector<Pass>>& steps) const {
    std::vector<std::vector<uint32_t>> calls(steps.size());
    for (uint32_t i = 0; i < count(); ++i) {
      if (spans_[i].kind != SpanKind::kModule || !is_in_step(i) || text(i).starts_with(kOptimizerPrefix)) continue;
      calls[claims_.step_of(i)].push_back(i);
      i = claims_.end_of(i) - 1;
    }
    std::vector<uint32_t> result(steps.size(), kNoSpan);
    for (size_t s = 0; s < steps.size(); ++s) {
      std::set<uint32_t> used;
      for (const Pass& pass : steps[s]) used.insert(pass.roots.begin(), pass.roots.end());
      std::map<uint32_t, std::vector<uint32_t>> by_name;
      for (const uint32_t call : calls[s]) by_name[spans_[call].name].push_back(call);
      for (const auto& [name, of] : by_name) {
        if (of.size() != 2 || used.contains(of[0]) == used.contains(of[1])) continue;
        const Tensor *a = first_input(of[0]), *b = first_input(of[1]);
        if (a == nullptr || b == nullptr || a->sizes != b->sizes || elements_of(a->sizes) == 0) continue;
        result[s] = used.contains(of[0]) ? of[1] : of[0];
      }
    }
    return result;
  }

  const Tensor* first_input(uint32_t call) const {
    for (uint32_t i = call + 1; i < claims_.end_of(call); ++i)
      if (is_operator(i))
        if (const Tensor* of = first_tensor(i)) return of;
    return nullptr;
  }

  // Attention by hand: a product that gives T x S, softmax over it, a product with it

  // The last two sizes.
  static std::optional<std::pair<int64_t, int64_t>> scores_of(const Tensor* tensor) {
    if (tensor == nullptr || tensor->sizes.size() < 3) return std::nullopt;
    const Shape& sizes = tensor->sizes;
    return std::pair(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  }
  static bool is_product(std::string_view name) { return kind_of_operator(name) == OperatorKind::kProduct; }

  double flops(uint32_t i) const {  // of a product: rows, columns and what is added up, by its first two matrices
    std::vector<const Shape*> shapes;
    for (const Input& input : inputs(i))
      for (const Tensor& each : input.tensors)
        if (each.sizes.size() >= 2) shapes.push_back(&each.sizes);
    if (shapes.size() < 2) return 0;
    const Shape& b = *shapes.back();
    const Shape& a = *shapes[shapes.size() - 2];
    return 2.0 * static_cast<double>(elements_of(a)) * static_cast<double>(b.back());
  }

  void attention() {
    Group group;
    double products_ns = 0, kept_ns = 0;
    uint64_t times = 0;
    std::map<std::pair<int64_t, int64_t>, uint64_t> sizes;
    std::map<uint32_t, uint64_t> modules;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !is_in_step(i) || claims_.is_claimed(i)) continue;
      if (!is_softmax(text(i))) continue;
      const auto scores = scores_of(first_tensor(i));
      if (!scores || scores->first < 16 || scores->second < 16) continue;
      const uint32_t around = parent_of_chain(i);
      const uint32_t before = product_before(i, around, *scores), after = product_after(i, around, *scores);
      if (before == kNoSpan || after == kNoSpan) continue;
      ++times;
      ++sizes[*scores];
      group.add(before, after);
      for (const uint32_t product : {before, after}) {
        products_ns += static_cast<double>(spans_[product].ns());
        kept_ns += flops(product) / kProductFlopsPerNs;
      }
    }
    if (group.empty()) return;
    std::string where;
    {
      PlaceSums places;
      for (const Group::Stretch& s : group.stretches) add_to(places[row_.place[s.first]].ns, spans_[s.first].ns());
      where = v_.where(most_of(places));
    }
    add_backward(group);
    // The backward of fused attention has five products of this size, the forward two.
    const bool has_backward = group.stretches.size() > times;
    const double kept = std::min(kept_ns * (has_backward ? 3.5 : 1), products_ns * (has_backward ? 3 : 1));
    const auto most = std::ranges::max_element(sizes, {}, [](const auto& each) { return each.second; });
    tell({.rule = "attention",
          .what = "Attention is written out, with full matrices of scores: {}.",
          .evidence = "Products, a softmax and what is between them on " + std::to_string(most->first.first) + " x " +
                      std::to_string(most->first.second) + " scores for each head, " +
                      number_text(v_.per_step(times), "time") + ".",
          .where = std::move(where),
          .todo = "Use torch.nn.functional.scaled_dot_product_attention (is_causal=True for a causal mask); of "
                  "nn.MultiheadAttention need_weights=False; of transformers attn_implementation=\"sdpa\"."},
         group, 1, per_step(kept));
  }

  static constexpr double kProductFlopsPerNs = 20;  // of fused attention on one core

  static bool is_softmax(std::string_view name) {
    return name == "aten::softmax" || name == "aten::_softmax" || name == "aten::_safe_softmax";
  }
  // The function or module in which the products of an attention are: further out than functions that only call one.
  uint32_t parent_of_chain(uint32_t i) const {
    uint32_t around = spans_[i].parent;
    while (around != kNoSpan) {
      uint32_t products = 0;
      each_operator(around + 1, claims_.end_of(around), [&](uint32_t j) { products += is_product(text(j)); });
      if (products >= 2) break;
      around = spans_[around].parent;
    }
    return around;
  }
  uint32_t product_before(uint32_t softmax, uint32_t around, const std::pair<int64_t, int64_t>& scores) const {
    uint32_t found = kNoSpan;
    const uint32_t from = around == kNoSpan ? softmax - std::min(softmax, kNear) : around + 1;
    each_operator(std::max(from, softmax - std::min(softmax, kNear)), softmax, [&](uint32_t i) {
      if (!is_product(text(i))) return;
      const auto tensors = matrices(i);
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
    const uint32_t to = around == kNoSpan ? count() : claims_.end_of(around);
    each_operator(softmax + 1, std::min(to, softmax + kNear), [&](uint32_t i) {
      if (found != kNoSpan || !is_product(text(i))) return;
      for (const Shape* each : matrices(i)) {
        if (each->size() < 3) continue;
        const std::pair last((*each)[each->size() - 2], each->back());
        if (last == scores) found = i;
      }
    });
    return found;
  }
  static constexpr uint32_t kNear = 400;  // spans
  static bool has(const Shape& shape, int64_t size) { return std::ranges::find(shape, size) != shape.end(); }
  std::vector<const Shape*> matrices(uint32_t i) const {
    std::vector<const Shape*> result;
    for (const Input& input : inputs(i))
      for (const Tensor& each : input.tensors)
        if (each.is_readable && each.sizes.size() >= 2) result.push_back(&each.sizes);
    return result;
  }

  // Dense gradients of embeddings of which a batch uses a few rows

  // Without: what operators on a whole table take, less the rows that are used.
  void embeddings() {
    std::map<Shape, std::pair<int64_t, uint32_t>> tables;  // by the table's sizes: most rows used, forward operator
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_operator(i) || text(i) != "aten::embedding_dense_backward" || !is_in_step(i)) continue;
      const Tensor *grad = tensor(i, 0), *indices = tensor(i, 1);
      const int64_t rows = integer(i, 2, 0);
      if (grad == nullptr || indices == nullptr || grad->sizes.empty() || rows <= 0) continue;
      auto& [used, forward] = tables[{rows, grad->sizes.back()}];
      used = std::max(used, elements_of(indices->sizes));
      forward = forward_[top_[i]];
    }
    std::erase_if(tables, [](const auto& each) {
      const auto& [sizes, of] = each;
      return elements_of(sizes) < kLargeTable || of.first * 4 > sizes[0];
    });
    if (tables.empty()) return;
    // Weights that a product uses, too, have a dense gradient anyway.
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !is_product(text(i))) continue;
      for (const Shape* each : matrices(i)) {
        tables.erase(*each);
        tables.erase(Shape(each->rbegin(), each->rend()));
      }
    }
    if (tables.empty()) return;
    Group group;
    double ns = 0;
    std::map<Shape, double> by_table;
    uint32_t forward = kNoSpan;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_operator(i) || !is_in_step(i) || claims_.is_claimed(i)) continue;
      const std::string_view name = text(i);
      if (name == "aten::embedding" || name.starts_with("aten::to_sparse")) continue;
      double part = 0;
      if (name == "aten::embedding_dense_backward") {
        const Tensor* grad = tensor(i, 0);
        if (grad == nullptr || grad->sizes.empty()) continue;
        const auto table = tables.find({integer(i, 2, 0), grad->sizes.back()});
        if (table == tables.end()) continue;
        part = 1;
        by_table[table->first] += static_cast<double>(spans_[i].ns());
      } else {
        part = part_of_tables(i, tables);
        if (part == 0) continue;
      }
      ns += part * static_cast<double>(claims_.free_ns(i));
      group.add(i);
      i = claims_.end_of(i) - 1;
    }
    const auto most = std::ranges::max_element(by_table, {}, [](const auto& each) { return each.second; });
    if (most == by_table.end()) return;
    const auto& [sizes, of] = *tables.find(most->first);
    forward = of.second;
    const int64_t cost = per_step(ns * (1 - static_cast<double>(of.first) / static_cast<double>(sizes[0])));
    if (!is_worth(cost, v_, kLeastPart)) return;
    claims_.claim(group);
    findings_.push_back(
        {.rule = "dense gradient",
         .cost_ns = cost,
         .what = "Gradients of embeddings are dense, so that backward, zero_grad and optimizer work on all rows: {}.",
         .evidence = "A batch uses at most " + std::to_string(of.first) + " of the " + std::to_string(sizes[0]) +
                     " rows of an embedding " + shape_text(sizes) + ".",
         .where = forward == kNoSpan ? std::string() : v_.where(row_.place[forward]),
         .todo =
             "Where the embedding is made, pass sparse=True (nn.Embedding, nn.EmbeddingBag), with an optimizer that "
             "can: SGD, Adagrad, SparseAdam."});
  }

  // Which part of what an operator is given has the sizes of one of the tables.
  template <class Tables>
  double part_of_tables(uint32_t i, const Tables& tables) const {
    double of_tables = 0, all = 0;
    for (const Input& input : inputs(i)) {
      if (input.left_out != 0) return 0;
      for (const Tensor& each : input.tensors) {
        const auto n = static_cast<double>(elements_of(each.sizes));
        all += n;
        if (tables.contains(each.sizes)) of_tables += n;
      }
    }
    return all == 0 ? 0 : of_tables / all;
  }

  // A layer over all positions of which one is used

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
      const auto key = std::pair(row_.place[of.first], sizes);
      if (!of.second) {
        used.insert(key);
        return;
      }
      Layer& layer = layers[key];
      layer.sizes = sizes;
      layer.group.add(of.first);
      ++layer.times;
    };
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !is_in_step(i)) continue;
      const std::string_view name = text(i);
      if (!name.starts_with(kEvaluateFunction)) {
        const Tensor* of = first_tensor(i);
        if (of != nullptr)
          if (const auto found = made.find(of->sizes); found != made.end()) {
            if (cuts_to_one(i)) {
              found->second.second = true;
            } else if (name != "aten::slice" || !is_whole_slice(i)) {
              // Something uses all of it.
              used.insert({row_.place[found->second.first], of->sizes});
              made.erase(found);
            }
          }
        if (name == "aten::linear" || name == "aten::matmul") {
          const Tensor *x = tensor(i, 0), *w = tensor(i, 1);
          if (x != nullptr && w != nullptr && x->sizes.size() == 3 && w->sizes.size() == 2 && x->sizes[1] > 1) {
            Shape sizes = x->sizes;
            sizes[2] = name == "aten::linear" ? w->sizes[0] : w->sizes[1];
            if (const auto found = made.find(sizes); found != made.end()) end(found->second, sizes);
            made[sizes] = {i, false};
          }
        }
      }
      i = claims_.end_of(i) - 1;
    }
    for (const auto& [sizes, of] : made) end(of, sizes);
    for (auto& [key, layer] : layers) {
      if (used.contains(key)) continue;
      const std::string where = v_.where(key.first);
      add_backward(layer.group);
      tell({.rule = "unused positions",
            .what = "A linear layer computes all positions, of which one is used: {}.",
            .evidence = "Its result is " + shape_text(layer.sizes) + "; only one of its " +
                        std::to_string(layer.sizes[1]) + " positions is taken from it.",
            .where = where,
            .todo = "Take the position before the layer: head(x[:, -1])."},
           layer.group, 1 - 1.0 / static_cast<double>(layer.sizes[1]));
    }
  }

  // x[:, -1], x[:, 3:4] and x.select(1, 0) of three dimensions.
  bool cuts_to_one(uint32_t i) const {
    const std::string_view name = text(i);
    if (name == "aten::select") return integer(i, 1, -1) == 1;
    if (name != "aten::slice" || integer(i, 1, -1) != 1) return false;
    const Tensor* of = tensor(i, 0);
    const int64_t length = of->sizes[1];
    const auto within = [length](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length); };
    return within(integer(i, 3, length)) - within(integer(i, 2, 0)) == 1;
  }
  bool is_whole_slice(uint32_t i) const {
    const Tensor* of = tensor(i, 0);
    const int64_t dimension = integer(i, 1, -1);
    if (of == nullptr || dimension < 0 || dimension >= static_cast<int64_t>(of->sizes.size())) return false;
    return integer(i, 2, 0) == 0 && integer(i, 3, INT64_MAX) >= of->sizes[static_cast<size_t>(dimension)];
  }

  // Products with a matrix that was made dense for them
  //
  // Without: a tenth of it, as sparse matrices that are worth it have fewer elements still.

  void sparse_products() {
    Group group;
    std::set<Shape> dense;
    std::string where;
    Shape sizes;
    uint64_t times = 0;
    uint32_t step = Claims::kNoStep;
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !is_in_step(i) || claims_.is_claimed(i)) continue;
      if (claims_.step_of(i) != step) dense.clear();
      step = claims_.step_of(i);
      if (text(i) == "aten::to_dense" || text(i) == "aten::_to_dense") {
        const Tensor* of = first_tensor(i);
        if (of == nullptr || of->sizes.size() != 2) continue;
        if (dense.insert(of->sizes).second && sizes.empty()) {
          sizes = of->sizes;
          where = v_.where(row_.place[i]);
        }
        group.add(i);
      } else if (is_product(text(i)) && !dense.empty()) {
        for (const Shape* each : matrices(i)) {
          if (!dense.contains(*each)) continue;
          group.add(i);
          ++times;
          break;
        }
      }
    }
    if (times == 0) return;
    add_backward(group);
    tell({.rule = "sparse as dense",
          .what = "A sparse matrix is made dense in each step, and products work on all its zeros: {}.",
          .evidence = "It is " + shape_text(sizes) + "; " + number_text(v_.per_step(times), "product") + " with it.",
          .where = std::move(where),
          .todo = "Keep it sparse: torch.sparse.mm(matrix, x), or scatter the edges (index_add)."},
         group, 0.9);
  }

  // float64 where the rest is float32

  // Without: half of the time.
  void doubles() {
    uint64_t floats = 0, doubles = 0;
    for (const auto& [type, n] : parameter_types_) {
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
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i) || !is_in_step(i)) continue;
      if (!claims_.is_claimed(i) && works_on_doubles(i)) {
        group.add(i);
        const int64_t ns = claims_.free_ns(i);
        add_to(all_ns, ns);
        if (is_product(inner_name(i)) || inner_name(i).find("conv") != std::string_view::npos) add_to(product_ns, ns);
        if (!text(i).starts_with(kEvaluateFunction)) add_to(sums[row_.place[i]], ns);
        add_to(by_name[spans_[i].name], ns);
        if (by_name[spans_[i].name] > most_ns) {
          most_ns = by_name[spans_[i].name];
          most_name = text(i);
        }
      }
      i = claims_.end_of(i) - 1;
    }
    if (group.empty()) return;
    // Where all parameters are float64 it may be meant; then it has to be most of the work.
    const bool is_meant = doubles > floats;
    if (is_meant && product_ns * 2 < all_ns) return;
    PlaceSums places;
    for (const auto& [place, ns] : sums) places[place].ns = ns;
    if (most_name.starts_with(kEvaluateFunction)) most_name.remove_prefix(kEvaluateFunction.size());
    std::string evidence = "Operators on float64 take " + ns_text(v_.per_step(all_ns)) + ", most of it in " +
                           std::string(most_name) + "; in float32 they would take about half.";
    if (floats > doubles) evidence += " Parameters are float32.";
    tell({.rule = "float64",
          .what = "Operators work in float64: {}.",
          .evidence = std::move(evidence),
          .where = v_.where(most_of(places)),
          .todo = is_meant ? "If float32 is exact enough, make the model and its data float32 (.float())."
                           : "Make the data float32 where it comes from (NumPy's is float64): .float(), "
                             "dtype=torch.float32."},
         group, 0.5, 0, 20);
  }

  // The name of the operator itself, of the engine's the first inside.
  std::string_view inner_name(uint32_t i) const {
    std::string_view name = text(i);
    if (name.starts_with(kEvaluateFunction)) name.remove_prefix(kEvaluateFunction.size());
    if (name.starts_with("Mm") || name.starts_with("Addmm") || name.starts_with("Bmm")) return "aten::mm";
    return name.find("Convolution") != name.npos ? "aten::conv2d" : name;
  }

  // By the operator, or in the engine what is inside it.
  bool works_on_doubles(uint32_t i) const {
    constexpr int64_t kLarge = 1000;  // elements
    for (uint32_t j = i; j < claims_.end_of(i); ++j) {
      if (!is_operator(j)) continue;
      for (const Input& input : inputs(j))
        for (const Tensor& each : input.tensors)
          if (each.type == kDouble && elements_of(each.sizes) >= kLarge) return true;
    }
    return false;
  }

  // Any other operator that is no part of a network and takes long

  static std::string_view todo_of(OperatorKind kind, bool is_constant) {
    if (is_constant && kind != OperatorKind::kSelects && kind != OperatorKind::kRandom)
      return "No gradient goes through it: if what it gets does not change, do it once, before the steps, and keep the "
             "result. Else do it for the batch alone.";
    switch (kind) {
      case OperatorKind::kMoves:
        return "Keep the data in the form in which it is used (layout, dtype, device), or use views instead of copies.";
      case OperatorKind::kSelects:
        return "Join or gather less: only what is used, once, or into a tensor that exists (out=).";
      case OperatorKind::kSparse:
        return "Keep it sparse (torch.sparse.mm), or dense from the start.";
      case OperatorKind::kLinalg:
        return "Do it less often, on smaller matrices, or solve (torch.linalg.solve) instead of inverting.";
      case OperatorKind::kSorts:
        return "Sort or search less: topk instead of sort, once instead of in each step, or on fewer elements.";
      case OperatorKind::kMakes:
        return "Make it once, before the steps (register_buffer), or write into one that exists.";
      case OperatorKind::kRandom:
        return "Draw less, once, or in place into a tensor that exists.";
      default:
        return "Do it less often, on less data, or once, if what it gets does not change.";
    }
  }

  // What an outermost operator mostly does: itself, or for one that only calls others, what takes most inside.
  OperatorKind kind_of(uint32_t i) const {
    const OperatorKind own = kind_of_operator(text(i));
    if (own != OperatorKind::kNetwork || claims_.end_of(i) == i + 1) return own;
    // A reshape that copies, a comparison that converts.
    const std::string_view name = text(i);
    if (name != "aten::reshape" && name != "aten::flatten" && name != "aten::view_as") return own;
    for (uint32_t j = i + 1; j < claims_.end_of(i); ++j)
      if (is_operator(j) && kind_of_operator(text(j)) == OperatorKind::kMoves) return OperatorKind::kMoves;
    return own;
  }

  void others() {
    if (v_.has_gpu()) return;
    struct Other {
      Group group{};
      OperatorKind kind{};
      std::map<uint32_t, int64_t> names{};
      std::map<uint32_t, int64_t> places{};
      std::map<uint32_t, uint32_t> examples{};  // by name: the longest
      std::vector<uint32_t> operators{};
      int64_t ns = 0;
    };
    // Functions of the program, with what such operators take in them, and all they take.
    std::unordered_map<uint32_t, Other> by_function;
    std::map<std::pair<uint32_t, OperatorKind>, Other> by_place;
    const auto add = [&](Other& other, uint32_t i, OperatorKind kind, int64_t ns) {
      other.kind = kind;
      add_to(other.ns, ns);
      add_to(other.names[spans_[i].name], ns);
      add_to(other.places[row_.place[i]], ns);
      uint32_t& example = other.examples.try_emplace(spans_[i].name, i).first->second;
      if (spans_[i].ns() > spans_[example].ns()) example = i;
      other.operators.push_back(i);
      other.group.add(i);
    };
    for (uint32_t i = 0; i < count(); ++i) {
      if (!is_outermost(i)) continue;
      const OperatorKind kind = kind_of(i);
      const bool is_told = kind != OperatorKind::kNetwork && kind != OperatorKind::kProduct &&
                           kind != OperatorKind::kReads && !text(i).starts_with(kEvaluateFunction);
      if (is_told && is_in_step(i) && !claims_.is_claimed(i)) {
        const int64_t ns = claims_.free_ns(i);
        add(by_place[{row_.place[i], kind}], i, kind, ns);
        if (const uint32_t around = program_around(i); around != kNoSpan && is_part_of_step(around))
          add(by_function[around], i, kind, ns);
      }
      i = claims_.end_of(i) - 1;
    }
    // Functions in which such operators take most of the time are told as a whole.
    struct Function {
      Other other{};
      int64_t all_ns = 0;
    };
    std::map<uint32_t, Function> functions;  // by name
    for (auto& [span, other] : by_function) {
      Function& f = functions[spans_[span].name];
      add_to(f.all_ns, claims_.free_ns(span));
      add_to(f.other.ns, other.ns);
      f.other.kind = other.kind;
      for (const auto& [name, ns] : other.names) add_to(f.other.names[name], ns);
      for (const auto& [place, ns] : other.places) add_to(f.other.places[place], ns);
      for (const auto& [name, i] : other.examples) f.other.examples.try_emplace(name, i);
      f.other.operators.insert(f.other.operators.end(), other.operators.begin(), other.operators.end());
      f.other.group.add(span);
    }
    std::vector<Other> all;
    for (auto& [name, f] : functions)
      if (f.other.ns * 10 >= f.all_ns * 6) all.push_back(std::move(f.other));
    std::ranges::sort(all, std::ranges::greater(), &Other::ns);
    for (Other& other : all) tell_other(other);
    std::vector<Other> rest;
    for (auto& [key, other] : by_place) rest.push_back(std::move(other));
    std::ranges::sort(rest, std::ranges::greater(), &Other::ns);
    for (Other& other : rest) tell_other(other);
  }

  template <class Other>
  void tell_other(Other& other) {
    const auto name = std::ranges::max_element(other.names, {}, [](const auto& each) { return each.second; });
    const auto place = std::ranges::max_element(other.places, {}, [](const auto& each) { return each.second; });
    const uint32_t example = other.examples[name->first];
    const OperatorKind kind = kind_of(example);
    const bool has_backward = std::ranges::any_of(other.operators, [this](uint32_t i) { return takes_part(i); });
    add_backward(other.group);
    const std::string_view op = v_.text(name->first);
    const std::string where = v_.where(place->first);
    const Tensor* of = first_tensor(example);
    const std::string what = std::string(op) + (of == nullptr ? "" : " of " + shape_text(of->sizes));
    std::string evidence = number_text(v_.per_step(other.operators.size()), "operator") + ", the longest of them " +
                           ns_text(spans_[example].ns()) + ".";
    if (has_backward) evidence += " With its backward.";
    // What a program can hardly do without has to be more.
    const bool is_usual =
        kind == OperatorKind::kSelects || kind == OperatorKind::kMakes || kind == OperatorKind::kOther;
    // A network that gathers and scatters, as those on graphs, has to; a loop that joins one by one has not.
    if (kind == OperatorKind::kSelects && has_backward && v_.per_step(other.operators.size()) < 30) return;
    const int64_t least = kind == OperatorKind::kRandom ? 2 : is_usual ? 4 : 8;
    tell({.rule = "operator",
          .what = what + " takes {}; it is no part of a network's arithmetic.",
          .evidence = std::move(evidence),
          .where = where,
          .todo = std::string(todo_of(kind, !has_backward))},
         other.group, 1, 0, least);
  }

  // Whether gradients go through an operator.
  bool takes_part(uint32_t i) const {
    for (uint32_t j = i; j < claims_.end_of(i); ++j)
      if (has_backward_.contains(j)) return true;
    return false;
  }

  const StepView& v_;
  const Timeline& t_;
  const RowView& row_;
  const std::vector<TimelineSpan>& spans_;
  Findings& findings_;
  Claims claims_;
  std::vector<uint32_t> forward_;                // of the engine's nodes: the forward operator; kNoSpan: not known
  std::vector<uint32_t> top_;                    // of operators: the outermost one around it
  std::vector<uint32_t> nodes_;                  // of the engine
  std::unordered_set<uint32_t> has_backward_;    // forward operators
  std::map<Shape, uint64_t> parameters_;         // gradients that are added up in a step, by their sizes
  std::map<uint8_t, uint64_t> parameter_types_;  // in all steps
  uint64_t accumulated_ = 0;
  double parameters_per_step_ = 0;
  double bytes_per_ns_ = kPlainBytesPerNs;
  std::map<uint32_t, ReadGroup> reads_;  // by place
};

}  // namespace

Claimed find_in_operators(const Subject& subject, Findings& findings) {
  return subject.view.has_main() ? OperatorRules(subject, findings).run() : Claimed();
}

}  // namespace torchprof::formats
