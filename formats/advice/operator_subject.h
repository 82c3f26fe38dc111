// A process's main row as the rules about operators of torch look at it: what its operators work on and belong to, and
// which of its time a finding has told already.
//
//   outermost  an operator that no other operator calls. Rules claim these, with all that they call
//   node       an operator of autograd's engine (NameRole::kNode); its forward operator has the same sequence number
//   parameter  what the engine adds a gradient up for, in each step; known by its sizes
//   speed      of memory: the best that a large operator on each element of this row shows
//
// Spans are meant by their index in the main row. A rule claims by tell(), and so the order of the rules matters
// (operator_rules.h).
//
// Memory: 8 bytes for each span, those of Claims, and some for each node and its forward operator.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "formats/advice/claims.h"
#include "formats/advice/operator_kinds.h"
#include "formats/advice/rules.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {

inline constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";

using Shape = std::vector<int64_t>;

int64_t elements_of(const Shape& sizes);     // 0: too many to count
double bytes_of(const Tensor& tensor);       // of its elements; 0: too many to count
std::string shape_text(const Shape& sizes);  // "[64, 1024]"

// "name" of "path(line): name".
std::string_view function_name(std::string_view text);
// Whether it is a function of a file: "path(line): name", where the path is `file` or ends with "/" and it.
bool is_in_file(std::string_view text, std::string_view file);
inline bool is_product(std::string_view name) { return kind_of_operator(name) == OperatorKind::kProduct; }

struct OperatorSubject {
  // The process has a main row. Both outlive this.
  OperatorSubject(const Subject& subject, Findings& told);

  std::string_view text(uint32_t i) const { return view.text(spans[i].name); }
  NameRole role(uint32_t i) const { return timeline.role(spans[i].name); }
  bool is_node(uint32_t i) const { return role(i) == NameRole::kNode; }
  // A node's without what says that it is one.
  std::string_view plain_text(uint32_t i) const { return without_role(text(i), NameRole::kNode); }
  bool is_module(uint32_t i) const { return spans[i].kind == SpanKind::kModule && role(i) != NameRole::kOptimizer; }
  bool is_operator(uint32_t i) const { return spans[i].kind == SpanKind::kOperator; }
  bool is_function(uint32_t i) const { return spans[i].kind == SpanKind::kPython; }
  bool is_program(uint32_t i) const { return is_function(i) && timeline.is_program(spans[i].name); }
  bool is_outermost(uint32_t i) const {
    return is_operator(i) && (spans[i].parent == kNoSpan || !is_operator(spans[i].parent));
  }
  uint32_t count() const { return static_cast<uint32_t>(spans.size()); }
  bool is_in_step(uint32_t i) const { return claims.step_of(i) != Claims::kNoStep; }
  // A part of a step, not what is around it.
  bool is_part_of_step(uint32_t i) const;
  // The innermost function of the program around it, or itself.
  uint32_t program_around(uint32_t i) const;

  const std::vector<Input>& inputs(uint32_t i) const { return timeline.inputs(spans[i].inputs); }
  // Null: it is no tensor, or cannot be read.
  const Tensor* tensor(uint32_t i, size_t number) const;
  // Likewise: the first tensor, or the first of a list.
  const Tensor* first_tensor(uint32_t i) const;
  int64_t integer(uint32_t i, size_t number, int64_t otherwise) const;
  // Sizes of what has two dimensions or more.
  std::vector<const Shape*> matrices(uint32_t i) const;
  double bytes_of(uint32_t i) const;
  // What an operator on each element takes at least, at this run's speed of memory.
  int64_t arithmetic_ns(uint32_t i) const;

  bool is_optimizer_step(uint32_t i) const {
    return spans[i].kind == SpanKind::kAnnotation && role(i) == NameRole::kOptimizerStep;
  }

  // Whether it runs in the engine of autograd.
  bool is_of_engine(uint32_t i) const { return is_node(top[i]); }

  // Whether gradients go through an operator, or through one that it calls.
  bool takes_part(uint32_t i) const;

  // Outermost operators in [from, to) that nobody has claimed, without those of the engine.
  template <class F>
  void each_operator(uint32_t from, uint32_t to, F f) const {
    for (uint32_t i = from; i < to; ++i)
      if (is_outermost(i)) {
        if (!claims.is_claimed(i) && !is_node(i)) f(i);
        i = claims.end_of(i) - 1;
      }
  }

  // The outer calls of torch.autograd's backward() and grad() in the steps.
  std::vector<uint32_t> passes() const;
  // The engine's nodes in a span.
  std::span<const uint32_t> nodes_in(uint32_t span) const;

  // Calls of modules, also outside of steps. Where f(span) says so, what is inside of one is left out.
  template <class F>
  void each_module_call(F f) const {
    for (uint32_t i = 0; i < count(); ++i)
      if (is_module(i) && f(i)) i = claims.end_of(i) - 1;
  }

  // Adds the nodes of the backward that belong to what is between two spans.
  void add_backward(Group& group) const;

  // Claims and tells if it is worth it. `f` has no cost yet.
  bool tell(Finding f, const Group& group, double part = 1, int64_t without = 0, double least_percent = kLeastPercent) {
    return tell(std::move(f), group, claims.cost_of(group), part, without, least_percent);
  }
  // `cost`: what of the group's is meant.
  bool tell(Finding f, const Group& group, const GroupCost& cost, double part, int64_t without = 0,
            double least_percent = kLeastPercent);
  // Per step: a sum over all steps.
  int64_t per_step(double ns) const { return static_cast<int64_t>(ns / static_cast<double>(view.steps().size())); }
  // The line on which operators of the group take most time.
  std::string line_of(const Group& group) const;

  const StepView& view;
  const Timeline& timeline;
  const RowView& row;
  const std::vector<TimelineSpan>& spans;
  Findings& findings;
  Claims claims;
  std::vector<uint32_t> forward{};                // of the engine's nodes: the forward operator; kNoSpan: not known
  std::vector<uint32_t> top{};                    // of operators: the outermost one around it
  std::vector<uint32_t> nodes{};                  // of the engine
  std::unordered_set<uint32_t> has_backward{};    // forward operators
  std::map<Shape, uint64_t> parameters{};         // gradients that are added up in a step, by their sizes
  std::map<uint8_t, uint64_t> parameter_types{};  // in all steps
  double parameters_per_step = 0;
  double bytes_per_ns = 8;  // of memory; where a run does not show more

 private:
  void look();
};

}  // namespace torchprof::formats
