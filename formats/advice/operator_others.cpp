#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/advice/operator_rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// Any other operator that is no part of a network and takes long.
class OtherOperators {
 public:
  explicit OtherOperators(OperatorSubject& o) : o_(o) {}

  void find() {
    if (o_.view.has_gpu()) return;
    // Functions of the program, with what such operators take in them, and all they take.
    std::unordered_map<uint32_t, Other> by_function;
    std::map<std::pair<uint32_t, OperatorKind>, Other> by_place;
    const auto add = [&](Other& other, uint32_t i, OperatorKind kind, int64_t ns) {
      other.kind = kind;
      add_to(other.ns, ns);
      add_to(other.names[o_.spans[i].name], ns);
      add_to(other.places[o_.row.place[i]], ns);
      uint32_t& example = other.examples.try_emplace(o_.spans[i].name, i).first->second;
      if (o_.spans[i].ns() > o_.spans[example].ns()) example = i;
      other.operators.push_back(i);
      other.group.add(i);
    };
    for (uint32_t i = 0; i < o_.count(); ++i) {
      if (!o_.is_outermost(i)) continue;
      const OperatorKind kind = kind_of(i);
      const bool is_told = kind != OperatorKind::kNetwork && kind != OperatorKind::kProduct &&
                           kind != OperatorKind::kReads && !o_.is_node(i);
      if (is_told && o_.is_in_step(i) && !o_.claims.is_claimed(i)) {
        const int64_t ns = o_.claims.free_ns(i);
        add(by_place[{o_.row.place[i], kind}], i, kind, ns);
        if (const uint32_t around = o_.program_around(i); around != kNoSpan && o_.is_part_of_step(around))
          add(by_function[around], i, kind, ns);
      }
      i = o_.claims.end_of(i) - 1;
    }
    // Functions in which such operators take most of the time are told as a whole.
    struct Function {
      Other other{};
      int64_t all_ns = 0;
    };
    std::map<uint32_t, Function> functions;  // by name
    for (auto& [span, other] : by_function) {
      Function& f = functions[o_.spans[span].name];
      add_to(f.all_ns, o_.claims.free_ns(span));
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

 private:
  struct Other {
    Group group{};
    OperatorKind kind{};
    std::map<uint32_t, int64_t> names{};
    std::map<uint32_t, int64_t> places{};
    std::map<uint32_t, uint32_t> examples{};  // by name: the longest
    std::vector<uint32_t> operators{};
    int64_t ns = 0;
  };

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
    const OperatorKind own = kind_of_operator(o_.text(i));
    if (own != OperatorKind::kNetwork || o_.claims.end_of(i) == i + 1) return own;
    // A reshape that copies, a comparison that converts.
    const std::string_view name = o_.text(i);
    if (name != "aten::reshape" && name != "aten::flatten" && name != "aten::view_as") return own;
    for (uint32_t j = i + 1; j < o_.claims.end_of(i); ++j)
      if (o_.is_operator(j) && kind_of_operator(o_.text(j)) == OperatorKind::kMoves) return OperatorKind::kMoves;
    return own;
  }

  void tell_other(Other& other) {
    const auto name = std::ranges::max_element(other.names, {}, [](const auto& each) { return each.second; });
    const auto place = std::ranges::max_element(other.places, {}, [](const auto& each) { return each.second; });
    const uint32_t example = other.examples[name->first];
    const OperatorKind kind = kind_of(example);
    const bool has_backward = std::ranges::any_of(other.operators, [this](uint32_t i) { return o_.takes_part(i); });
    o_.add_backward(other.group);
    const std::string_view op = o_.view.text(name->first);
    const std::string where = o_.view.where(place->first);
    const Tensor* of = o_.first_tensor(example);
    const std::string what = std::string(op) + (of == nullptr ? "" : " of " + shape_text(of->sizes));
    std::string evidence = number_text(o_.view.per_step(other.operators.size()), "operator") +
                           ", the longest of them " + ns_text(o_.spans[example].ns()) + ".";
    if (has_backward) evidence += " With its backward.";
    // What a program can hardly do without has to be more.
    const bool is_usual =
        kind == OperatorKind::kSelects || kind == OperatorKind::kMakes || kind == OperatorKind::kOther;
    // A network that gathers and scatters, as those on graphs, has to; a loop that joins one by one has not.
    if (kind == OperatorKind::kSelects && has_backward && o_.view.per_step(other.operators.size()) < 30) return;
    if (is_stall(other.operators)) return;
    const double least_percent = kind == OperatorKind::kRandom ? 50 : is_usual ? 25 : 12.5;
    o_.tell({.rule = "operator",
             .what = what + " takes {}; it is no part of a network's arithmetic.",
             .evidence = std::move(evidence),
             .where = where,
             .todo = std::string(todo_of(kind, !has_backward))},
            other.group, 1, 0, least_percent);
  }

  // Whether most of their time is that of a few, fewer than there are steps: their thread was held up in these.
  bool is_stall(const std::vector<uint32_t>& operators) const {
    const size_t few = o_.view.steps().size() / 10 + 1;
    if (operators.size() < 4 * few) return false;
    std::vector<int64_t> ns;
    for (const uint32_t i : operators) ns.push_back(o_.spans[i].ns());
    std::ranges::sort(ns, std::ranges::greater());
    int64_t longest = 0, all = 0;
    for (size_t i = 0; i < ns.size(); ++i) {
      add_to(all, ns[i]);
      if (i + 1 == few) longest = all;
    }
    return longest * 2 > all;
  }

  OperatorSubject& o_;
};

}  // namespace

void find_other_operators(OperatorSubject& subject) { OtherOperators(subject).find(); }

}  // namespace torchprof::formats
