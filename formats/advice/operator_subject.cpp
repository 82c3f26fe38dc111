#include "formats/advice/operator_subject.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

int64_t elements_of(const Shape& sizes) {
  double n = 1;
  for (const int64_t size : sizes) n *= static_cast<double>(std::max<int64_t>(0, size));
  return n < 9e15 ? static_cast<int64_t>(n) : 0;
}

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(elements_of(tensor.sizes)) * element_size(tensor.type);
}

std::string shape_text(const Shape& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

std::string_view function_name(std::string_view text) { return split_place(text).name; }

bool is_in_file(std::string_view text, std::string_view file) {
  const std::string_view path = split_place(text).file;
  if (!path.ends_with(file)) return false;
  return path.size() == file.size() || path[path.size() - file.size() - 1] == '/';
}

OperatorSubject::OperatorSubject(const Subject& subject, Findings& told)
    : view(subject.view),
      timeline(view.timeline()),
      row(view.rows()[view.main()]),
      spans(timeline.rows[view.main()].spans),
      findings(told),
      claims(view) {
  look();
}

bool OperatorSubject::is_part_of_step(uint32_t i) const {
  if (!is_in_step(i)) return false;
  const StepSpan& step = view.steps()[claims.step_of(i)];
  return spans[i].end <= step.end && spans[i].ns() < (step.end - step.begin) / 10 * 9;
}

uint32_t OperatorSubject::program_around(uint32_t i) const {
  while (i != kNoSpan && !is_program(i)) i = spans[i].parent;
  return i;
}

const Tensor* OperatorSubject::tensor(uint32_t i, size_t number) const {
  const std::vector<Input>& all = inputs(i);
  if (number >= all.size() || all[number].kind != Input::Kind::kTensor || all[number].tensors.empty()) return nullptr;
  const Tensor& tensor = all[number].tensors[0];
  return tensor.is_readable ? &tensor : nullptr;
}

const Tensor* OperatorSubject::first_tensor(uint32_t i) const {
  for (const Input& input : inputs(i))
    if (!input.tensors.empty() && input.tensors[0].is_readable) return &input.tensors[0];
  return nullptr;
}

int64_t OperatorSubject::integer(uint32_t i, size_t number, int64_t otherwise) const {
  const std::vector<Input>& all = inputs(i);
  return number < all.size() && all[number].integers.size() == 1 ? all[number].integers[0] : otherwise;
}

std::vector<const Shape*> OperatorSubject::matrices(uint32_t i) const {
  std::vector<const Shape*> result;
  for (const Input& input : inputs(i))
    for (const Tensor& each : input.tensors)
      if (each.is_readable && each.sizes.size() >= 2) result.push_back(&each.sizes);
  return result;
}

double OperatorSubject::bytes_of(uint32_t i) const {
  double bytes = 0;
  for (const Input& input : inputs(i))
    for (const Tensor& each : input.tensors) bytes += formats::bytes_of(each);
  return bytes;
}

int64_t OperatorSubject::arithmetic_ns(uint32_t i) const {
  return std::min(spans[i].ns(), static_cast<int64_t>(bytes_of(i) / bytes_per_ns));
}

void OperatorSubject::look() {
  forward.resize(count(), kNoSpan);
  top.resize(count(), kNoSpan);
  uint64_t accumulated = 0;
  std::unordered_map<uint32_t, uint32_t> last;  // forward operator, by its number
  for (uint32_t i = 0; i < count(); ++i) {
    if (!is_operator(i)) continue;
    const uint32_t parent = spans[i].parent;
    top[i] = parent != kNoSpan && is_operator(parent) ? top[parent] : i;
    const std::string_view name = text(i);
    if (is_node(i)) nodes.push_back(i);
    if (name == kAccumulate && is_in_step(i)) {
      ++accumulated;
      if (const Tensor* grad = first_tensor(i)) {
        ++parameters[grad->sizes];
        ++parameter_types[grad->type];
      }
    }
    if (is_elementwise(name)) {
      const double bytes = bytes_of(i);
      if (bytes >= 4e6 && spans[i].ns() > 0)
        bytes_per_ns = std::clamp(bytes / static_cast<double>(spans[i].ns()), bytes_per_ns, 100.0);
    }
    const uint32_t sequence = spans[i].sequence;
    if (sequence == 0) continue;
    // A node, or its evaluate_function. What such a function calls has numbers of its own, with create_graph=True.
    if (!is_node(i) && (parent == kNoSpan || !is_operator(parent) || !is_node(parent))) {
      last[sequence] = i;
    } else if (const auto found = last.find(sequence); found != last.end()) {
      forward[top[i]] = found->second;
      has_backward.insert(found->second);
    }
  }
  const auto steps = static_cast<double>(view.steps().size());
  for (auto& [shape, n] : parameters) n = static_cast<uint64_t>(std::lround(static_cast<double>(n) / steps));
  parameters_per_step = static_cast<double>(accumulated) / steps;
}

bool OperatorSubject::takes_part(uint32_t i) const {
  for (uint32_t j = i; j < claims.end_of(i); ++j)
    if (has_backward.contains(j)) return true;
  return false;
}

std::vector<uint32_t> OperatorSubject::passes() const {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < count(); ++i) {
    if (!is_function(i) || !is_in_step(i) || !is_in_file(text(i), "torch/autograd/__init__.py")) continue;
    const std::string_view name = function_name(text(i));
    if (name != "backward" && name != "grad") continue;
    result.push_back(i);
    i = claims.end_of(i) - 1;
  }
  return result;
}

std::span<const uint32_t> OperatorSubject::nodes_in(uint32_t span) const {
  const auto first = std::ranges::lower_bound(nodes, span);
  return {first, std::ranges::lower_bound(first, nodes.end(), claims.end_of(span))};
}

void OperatorSubject::add_backward(Group& group) const {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (const Group::Stretch& s : group.stretches) ranges.emplace_back(s.first, claims.end_of(s.last));
  std::ranges::sort(ranges);
  for (const uint32_t node : nodes) {
    const uint32_t from = forward[node];
    if (from == kNoSpan || claims.is_claimed(node)) continue;
    auto after = std::ranges::upper_bound(ranges, std::pair(from, UINT32_MAX));
    if (after == ranges.begin()) continue;
    if (from < std::prev(after)->second) group.add(node);
  }
}

bool OperatorSubject::tell(Finding f, const Group& group, const GroupCost& cost, double part, int64_t without,
                           double least_percent) {
  if (group.empty()) return false;
  f.cost_ns = cost.typical(part) - without;
  f.is_rare = cost.is_rare();
  if (!is_worth(f.cost_ns, f.is_rare ? view.step_ns() : view.typical_ns(), least_percent)) return false;
  // On a busy machine the step of the median cost can be another one than the median step.
  const std::vector<StepSpan>& steps = view.steps();
  size_t worth = 0;
  for (size_t i = 0; i < steps.size(); ++i)
    worth += is_worth(static_cast<int64_t>(static_cast<double>(cost.by_step[i]) * part) - without,
                      steps[i].end - steps[i].begin, least_percent);
  if (!f.is_rare && worth * 2 < cost.steps_with) return false;
  if (f.where.empty()) f.where = view.where(most_of(cost.places));
  if (f.evidence.empty() && size_t{10} * cost.steps_with < cost.by_step.size() * 9)
    f.evidence = "In " + std::to_string(cost.steps_with) + " of " + plural(cost.by_step.size(), "step") + ".";
  claims.claim(group);
  findings.push_back(std::move(f));
  return true;
}

std::string OperatorSubject::line_of(const Group& group) const {
  PlaceSums places;
  for (const Group::Stretch& s : group.stretches)
    for (uint32_t i = s.first; i < claims.end_of(s.last); ++i)
      if (is_outermost(i)) add_to(places[row.place[i]].ns, spans[i].ns());
  return view.where(most_of(places));
}

}  // namespace torchprof::formats
