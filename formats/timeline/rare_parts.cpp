#include "formats/timeline/rare_parts.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostPaths = 100'000;

struct Path {
  uint32_t parent = 0;
  std::vector<std::pair<uint32_t, int64_t>> steps{};  // index and time of those that have it
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
      const bool is_in_most = path.parent == 0 || is_usual(paths_[path.parent]);
      if (path.steps.size() < 2 || is_usual(path) || !is_in_most) continue;
      RarePart part = part_of(path);
      if (static_cast<double>(part.all_ns) >= least * static_cast<double>(all)) found.push_back(part);
    }
    std::ranges::stable_sort(found, std::greater<>(), &RarePart::all_ns);
    return found;
  }

 private:
  bool is_usual(const Path& path) const { return path.steps.size() * 2 >= t_.steps.size(); }

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
      of.steps.emplace_back(static_cast<uint32_t>(step - t_.steps.begin()), s.ns());
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
    std::ranges::stable_sort(path.steps, {}, [](const auto& each) { return each.first; });
    size_t kept = 0;
    for (const auto& [step, ns] : path.steps)
      if (kept != 0 && path.steps[kept - 1].first == step)
        add_to(path.steps[kept - 1].second, ns);
      else
        path.steps[kept++] = {step, ns};
    path.steps.resize(kept);
  }

  RarePart part_of(const Path& path) const {
    RarePart part{.row = path.row, .span = path.span, .steps = path.steps.size(), .of_steps = t_.steps.size()};
    std::vector<int64_t> ns;
    for (const auto& [step, took] : path.steps) {
      ns.push_back(took);
      add_to(part.all_ns, took);
    }
    std::ranges::nth_element(ns, ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2));
    part.median_ns = ns[ns.size() / 2];
    // Two of them are at some distance, whatever they are.
    constexpr size_t kFewest = 3;
    const auto number = [&](size_t i) { return t_.steps[path.steps[i].first].number; };
    for (size_t i = 1; i < path.steps.size() && path.steps.size() >= kFewest; ++i) {
      const uint64_t distance = number(i) - number(i - 1);
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
