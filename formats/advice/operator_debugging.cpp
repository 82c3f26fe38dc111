#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// torch's tools for who looks for an error, and a program's own: checks, prints, values that are read.
class Debugging {
 public:
  explicit Debugging(OperatorSubject& o) : o_(o) {}

  // torch's profiler is on.
  //
  // It costs as much again as calling operators and Python's functions: 8 ms of a step of 15 ms with 2,300 operators
  // (torch 2.x, all options), between 10 and 40 % with fewer options.
  void profiler() {
    constexpr int64_t kShort = 20'000;
    const TimelineState* longest = nullptr;
    int64_t all = 0;
    for (const TimelineState& s : o_.timeline.states) {
      if (s.kind != StateKind::kProfiler || s.end <= s.begin) continue;
      add_to(all, o_.view.in_steps(s.begin, s.end));
      if (longest == nullptr || s.end - s.begin > longest->end - longest->begin) longest = &s;
    }
    if (longest == nullptr || all * 4 < o_.view.all_ns()) return;  // a schedule profiles a few steps
    int64_t calling = 0;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (o_.row.own[i] == 0 || !o_.is_in_step(i) || o_.row.activity[i] == Activity::kLoading) continue;
      add_to(calling, o_.is_operator(i) ? std::min(o_.row.own[i], kShort) : o_.row.own[i]);
    }
    const double part = static_cast<double>(all) / static_cast<double>(o_.view.all_ns());
    const int64_t cost = o_.per_step(static_cast<double>(calling) / 2 * part);
    if (!is_worth(cost, o_.view.step_ns())) return;
    o_.findings.push_back(
        {.rule = "profiler",
         .cost_ns = cost,
         .what = "torch.profiler is on, in " + percent_text(all, o_.view.all_ns()) + " of the time of steps: about {}.",
         .evidence = "An estimate: half of what Python and short operators take while it records.",
         .where = o_.view.where(longest->place),
         .todo = "Take it out, or give it a schedule(wait, warmup, active) that records a few steps."});
  }

  // Functions of libraries that say what their operators are for.
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
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_function(i) || !o_.is_in_step(i)) continue;
      const std::string_view name = o_.text(i);
      for (size_t k = 0; k < kKnown.size(); ++k) {
        if (!is_in_file(name, kKnown[k].file)) continue;
        if (!kKnown[k].name.empty() && function_name(name) != kKnown[k].name) continue;
        // Tensor.__repr__ and __format__ do nothing else.
        uint32_t outer = i;
        const uint32_t parent = o_.spans[i].parent;
        if (parent != kNoSpan && o_.is_function(parent) && is_in_file(o_.text(parent), "torch/_tensor.py"))
          outer = parent;
        groups[k].add(outer);
        ++calls[k];
        i = o_.claims.end_of(i) - 1;
        break;
      }
    }
    for (size_t k = 0; k < kKnown.size(); ++k) {
      if (groups[k].empty()) continue;
      o_.tell({.rule = kKnown[k].rule,
               .what = std::string(kKnown[k].what),
               .evidence = "It is called " + number_text(o_.view.per_step(calls[k]), "time") + ".",
               .todo = std::string(kKnown[k].todo)},
              groups[k]);
    }
  }

  // Anomaly detection: the engine looks for NaN in what each node gives, and each forward operator keeps its stack.
  void anomalies() {
    Group group;
    uint64_t nodes = 0, checked = 0;
    for (const uint32_t node : o_.nodes) {
      if (!o_.is_in_step(node) || o_.text(node).ends_with(kAccumulate)) continue;
      ++nodes;
      bool is_checked = false;
      for (uint32_t i = node + 1; i < o_.claims.end_of(node); i = o_.claims.end_of(i)) {
        if (o_.text(i) == "aten::isnan") is_checked = true;
        if (is_checked && o_.is_operator(i)) group.add(i);
      }
      checked += is_checked;
    }
    if (checked * 2 < nodes || checked == 0) return;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      const uint32_t parent = o_.spans[i].parent;
      if (!o_.is_function(i) || parent == kNoSpan || !o_.is_operator(parent) || !o_.is_in_step(i)) continue;
      if (o_.text(i).find("traceback.py(") == std::string_view::npos) continue;
      group.add(i);
      i = o_.claims.end_of(i) - 1;
    }
    o_.tell({.rule = "anomaly detection",
             .what = "Anomaly detection is on: it looks for NaN after each part of the backward, for {}.",
             .evidence = number_text(o_.view.per_step(checked), "check") + " in the backward.",
             .where = anomalies_at(),
             .todo = "Take out torch.autograd.set_detect_anomaly(True) and detect_anomaly() when the cause is found."},
            group);
  }

  // Checks for values that are not finite, each of which is read.
  //
  // Functions that only check, and rows of operators in others that do.
  void finite_checks() {
    Group group;
    uint64_t reads = 0, checks = 0;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_in_step(i)) continue;
      if (o_.is_program(i) && o_.is_part_of_step(i)) {
        bool is_check = false, is_only = true;
        uint64_t read = 0;
        uint32_t n = 0;
        // Long ones are no function that checks one thing.
        for (uint32_t j = i + 1; j < o_.claims.end_of(i) && is_only && n < 1000; ++j) {
          if (o_.spans[j].kind == SpanKind::kModule) is_only = false;
          if (!o_.is_outermost(j)) continue;
          ++n;
          is_check = is_check || begins_check(o_.text(j));
          read += reads_value(o_.text(j));
          is_only = is_only && is_of_check(o_.text(j));
          j = o_.claims.end_of(j) - 1;
        }
        if (is_check && is_only && read != 0) {
          group.add(i);
          reads += read;
          ++checks;
          i = o_.claims.end_of(i) - 1;
        }
        continue;
      }
      if (!o_.is_outermost(i) || !begins_check(o_.text(i))) continue;
      // From here on, as long as operators of the same function belong to it, to the last one that reads.
      uint32_t last = kNoSpan;
      for (uint32_t j = i; j < o_.count() && o_.spans[j].parent == o_.spans[i].parent; j = o_.claims.end_of(j)) {
        if (o_.is_operator(j) && !is_of_check(o_.text(j))) break;
        if (o_.is_function(j) && o_.is_program(j)) break;
        if (!o_.is_operator(j)) continue;
        if (!reads_value(o_.text(j))) continue;
        last = j;
        ++reads;
        break;
      }
      if (last == kNoSpan) continue;
      group.add(i, last);
      ++checks;
      i = o_.claims.end_of(last) - 1;
    }
    o_.tell(
        {.rule = "checking",
         .what = "Tensors are checked to be finite, and each result is read: {}.",
         .evidence = number_text(o_.view.per_step(checks), "check") + ", which read " +
                     number_text(o_.view.per_step(reads), "value") + " (item(), bool()).",
         .where = o_.line_of(group),
         .todo = "Check the loss alone, or less often, or behind a flag; norms of many tensors at once are finite only "
                 "if all are (torch._foreach_norm)."},
        group);
  }

  // Values that are read one by one.
  //
  // Without: all of it, from the first to the last.
  void items() {
    if (o_.view.has_gpu()) return;  // they wait for it: "sync"
    struct Reads {
      uint32_t first = kNoSpan, last = kNoSpan;
      uint64_t reads = 0;
    };
    constexpr uint64_t kMany = 20;  // of one call of a function
    std::unordered_map<uint32_t, Reads> by_function;
    std::vector<uint32_t> functions;
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i) || !reads_value(o_.text(i)) || o_.claims.is_claimed(i) || !o_.is_in_step(i)) continue;
      // Of a step, if the function is around many.
      uint32_t around = o_.program_around(i);
      if (around == kNoSpan) continue;
      auto [found, is_new] = by_function.try_emplace(around);
      Reads& reads = found->second;
      if (!is_new && o_.claims.step_of(reads.last) != o_.claims.step_of(i)) {
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
      o_.tell(
          {.rule = "reading values",
           .what = "Elements of tensors are read one by one, with item(): {}.",
           .evidence = number_text(o_.view.per_step(each.reads), "value") + ", in " +
                       number_text(o_.view.per_step(each.operators), "operator") + ".",
           .where = o_.view.where(place),
           .todo = "Compute with whole tensors and read the result once: (a == b).sum().item(), or tolist() before the "
                   "loop."},
          each.group);
    }
  }

 private:
  struct Known {
    std::string_view rule, file, name;  // an empty name: any function of the file
    std::string_view what, todo;
  };

  std::string anomalies_at() const {
    for (const TimelineState& s : o_.timeline.states)
      if (s.kind == StateKind::kAnomalies) return o_.view.where(s.place);
    return {};
  }

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

  struct ReadGroup {
    Group group{};
    uint64_t reads = 0, operators = 0;
  };

  void end_reads(uint32_t first, uint32_t last, uint64_t reads, uint64_t many) {
    if (first == kNoSpan || reads < many) return;
    uint64_t operators = 0, short_ones = 0;
    bool has_module = false;
    // What makes the first value stands before it.
    while (first > 0 && o_.spans[first - 1].parent == o_.spans[first].parent && o_.is_outermost(first - 1) &&
           o_.spans[first - 1].ns() < 15'000 && o_.claims.step_of(first - 1) == o_.claims.step_of(first) &&
           o_.spans[first].begin - o_.spans[first - 1].end < 5'000 && o_.claims.end_of(first - 1) == first)
      --first;
    for (uint32_t i = first; i < o_.claims.end_of(last); ++i) {
      has_module = has_module || o_.spans[i].kind == SpanKind::kModule;
      if (!o_.is_outermost(i)) continue;
      has_module = has_module || o_.is_node(i);
      ++operators;
      short_ones += o_.spans[i].ns() < 15'000;
      i = o_.claims.end_of(i) - 1;
    }
    // A loop of steps reads a loss each; a loop over elements has a few short operators for each.
    if (has_module || reads * 8 < operators || short_ones * 10 < operators * 8) return;
    ReadGroup& into = reads_[o_.row.place[last]];
    into.group.add(first, last);
    into.reads += reads;
    into.operators += operators;
  }

  OperatorSubject& o_;
  std::map<uint32_t, ReadGroup> reads_{};  // by place
};

}  // namespace

void find_profiler(OperatorSubject& subject) { Debugging(subject).profiler(); }
void find_known_functions(OperatorSubject& subject) { Debugging(subject).known_functions(); }
void find_anomaly_detection(OperatorSubject& subject) { Debugging(subject).anomalies(); }
void find_finite_checks(OperatorSubject& subject) { Debugging(subject).finite_checks(); }
void find_values_read(OperatorSubject& subject) { Debugging(subject).items(); }

}  // namespace torchprof::formats
