#include "formats/timeline/rare_parts.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostPaths = 100'000;

constexpr uint64_t kFarMore = 4;  // times as many calls

struct InStep {
  uint32_t step;  // index
  uint32_t calls;
  int64_t ns;
};

struct Path {
  uint32_t parent = 0;
  std::vector<InStep> steps{};  // those that have it
  bool is_usual = false;        // most steps have it, and about as often
  int64_t longest_ns = -1;
  uint32_t row = 0, span = 0;
};

class RareParts {
 public:
  explicit RareParts(const Timeline& timeline) : t_(timeline), paths_(1) {}

  std::vector<RarePart> run(double least) {
    for (uint32_t row = 0; row < t_.rows.size(); ++row)
      if (!t_.rows[row].is_overflow) look_at(row);
    int64_t all = 0;
    for (const StepSpan& s : t_.steps) add_to(all, s.end - s.begin);
    std::vector<RarePart> found;
    for (size_t i = 1; i < paths_.size(); ++i) {
      Path& path = paths_[i];
      settle(path);
      keep_far_more(path);
      const bool is_in_most = path.parent == 0 || paths_[path.parent].is_usual;
      if (path.steps.size() < 2 || path.is_usual || !is_in_most || are_in_a_row(path)) continue;
      RarePart part = part_of(path);
      if (static_cast<double>(part.all_ns) >= least * static_cast<double>(all)) found.push_back(part);
    }
    std::ranges::stable_sort(found, std::greater<>(), &RarePart::all_ns);
    return found;
  }

 private:
  // Of what most steps have, the few that call it far more often.
  void keep_far_more(Path& path) const {
    const auto are_most = [&] { return path.steps.size() * 2 >= t_.steps.size(); };
    path.is_usual = are_most();
    if (!path.is_usual) return;
    const uint64_t usual = median_of(path.steps, &InStep::calls);
    std::vector<InStep> more;
    for (const InStep& each : path.steps)
      if (each.calls >= kFarMore * usual) more.push_back(each);
    if (more.size() < 2 || more.size() * 2 >= t_.steps.size()) return;
    path.steps = std::move(more);
    path.is_usual = false;
  }

  // Most of them follow another one that has it.
  bool are_in_a_row(const Path& path) const {
    size_t following = 0;
    for (size_t i = 1; i < path.steps.size(); ++i) following += number(path, i) == number(path, i - 1) + 1;
    return following * 2 >= path.steps.size();
  }

  uint64_t number(const Path& path, size_t i) const { return t_.steps[path.steps[i].step].number; }

  template <class T>
  static T median_of(const std::vector<InStep>& steps, T InStep::*what) {
    std::vector<T> all;
    for (const InStep& each : steps) all.push_back(each.*what);
    std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2));
    return all[all.size() / 2];
  }

  void look_at(uint32_t row) {
    const std::vector<TimelineSpan>& spans = t_.rows[row].spans;
    std::vector<uint32_t> path(spans.size());  // 0: it is around the step, or in none
    for (uint32_t i = 0; i < spans.size(); ++i) {
      const TimelineSpan& s = spans[i];
      const auto step = std::ranges::upper_bound(t_.steps, s.begin, {}, &StepSpan::end);
      if (step == t_.steps.end() || s.begin < step->begin || s.end > step->end) continue;
      const uint32_t around = s.parent == kNoSpan ? 0 : path[s.parent];
      path[i] = around;
      const bool may_be = s.kind == SpanKind::kPython || s.kind == SpanKind::kModule || s.kind == SpanKind::kAnnotation;
      if (!may_be || s.is_async || t_.text(s.name).starts_with("import ")) continue;
      path[i] = child(around, s.name);
      if (path[i] == around) continue;  // no room
      Path& of = paths_[path[i]];
      of.steps.push_back({static_cast<uint32_t>(step - t_.steps.begin()), 1, s.ns()});
      if (s.ns() > of.longest_ns) of.longest_ns = s.ns(), of.row = row, of.span = i;
    }
  }

  uint32_t child(uint32_t parent, uint32_t name) {
    const auto [known, is_new] = children_.try_emplace(pair_key(parent, name), parent);
    if (is_new && paths_.size() < kMostPaths) {
      paths_.push_back({.parent = parent});
      known->second = static_cast<uint32_t>(paths_.size() - 1);
    }
    return known->second;
  }

  // Calls on one thread come in the order of steps; threads come one after the other.
  static void settle(Path& path) {
    std::ranges::stable_sort(path.steps, {}, &InStep::step);
    size_t kept = 0;
    for (const InStep& each : path.steps) {
      if (kept == 0 || path.steps[kept - 1].step != each.step) {
        path.steps[kept++] = each;
        continue;
      }
      ++path.steps[kept - 1].calls;
      add_to(path.steps[kept - 1].ns, each.ns);
    }
    path.steps.resize(kept);
  }

  RarePart part_of(const Path& path) const {
    RarePart part{.row = path.row, .span = path.span, .steps = path.steps.size(), .of_steps = t_.steps.size()};
    for (const InStep& each : path.steps) add_to(part.all_ns, each.ns);
    part.calls = median_of(path.steps, &InStep::calls);
    part.median_ns = median_of(path.steps, &InStep::ns);
    // Two of them are at some distance, whatever they are.
    constexpr size_t kFewest = 3;
    for (size_t i = 1; i < path.steps.size() && path.steps.size() >= kFewest; ++i) {
      const uint64_t distance = number(path, i) - number(path, i - 1);
      if (i > 1 && distance != part.every) {
        part.every = 0;
        break;
      }
      part.every = distance;
    }
    return part;
  }

  const Timeline& t_;
  std::vector<Path> paths_;
  std::unordered_map<uint64_t, uint32_t> children_;
};

}  // namespace

std::vector<RarePart> rare_parts_of(const Timeline& timeline, double least) {
  if (timeline.steps.size() < 4) return {};
  return RareParts(timeline).run(least);
}

}  // namespace torchprof::formats
