#include "formats/timeline/critical_path.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "formats/analysis/step_parts.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

std::string_view text_of(PathClass kind) {
  constexpr std::array<std::string_view, kPathClasses + 1> kTexts = {
      "host", "CUDA call", "launch delay", "kernel", "copy", "communication", "data loader", "idle", "wait"};
  return kTexts[static_cast<size_t>(kind)];
}

// Orders the points, and finds what each of them was ready by last. In a file that is damaged points may depend on each
// other in a circle: there an edge is taken out.
void StepGraph::settle() {
  const auto points = static_cast<uint32_t>(times_.size());
  std::ranges::stable_sort(edges_, {}, &Edge::to);
  first_.assign(points + 1, 0);
  for (const Edge& e : edges_) ++first_[e.to + 1];
  for (uint32_t p = 0; p < points; ++p) first_[p + 1] += first_[p];

  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> states(points, kNew);
  std::vector<std::pair<uint32_t, uint32_t>> open;  // a point and its next edge
  order_.reserve(points);
  for (uint32_t start = 0; start < points; ++start) {
    if (states[start] != kNew) continue;
    open.emplace_back(start, first_[start]);
    states[start] = kOpen;
    while (!open.empty()) {
      auto& [point, edge] = open.back();
      if (edge == first_[point + 1]) {
        states[point] = kDone;
        order_.push_back(point);
        open.pop_back();
        continue;
      }
      Edge& e = edges_[edge++];
      if (states[e.from] == kOpen) e.from = kNoSpan;
      if (e.from == kNoSpan || states[e.from] == kDone) continue;
      states[e.from] = kOpen;
      open.emplace_back(e.from, first_[e.from]);
    }
  }

  binds_.assign(points, kNoSpan);
  for (uint32_t p = 1; p < points; ++p) {
    int64_t waited = INT64_MIN, usual = 0;
    for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) {
      if (!edges_[i].may_be_late || edges_[i].from == kNoSpan) continue;
      waited = std::max(waited, times_[edges_[i].from]);
      usual = std::max(usual, edges_[i].usual);
    }
    for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) {
      Edge& e = edges_[i];
      if (e.from == kNoSpan) continue;
      if (waited != INT64_MIN)
        e.lag = e.may_be_late ? times_[p] - waited : std::min(e.lag, std::max(usual, times_[p] - waited));
      const uint32_t best = binds_[p];
      const auto ready = [this](const Edge& each) {
        return std::pair(times_[each.from] + each.lag, times_[each.from]);
      };
      if (best == kNoSpan || (p + 1 < points && ready(e) > ready(edges_[best]))) binds_[p] = i;
    }
    if (binds_[p] != kNoSpan) edges_[binds_[p]].lag = times_[p] - times_[edges_[binds_[p]].from];
  }
}

std::vector<PathSegment> StepGraph::path() const {
  std::vector<PathSegment> path;
  const auto add = [&path](int64_t begin, int64_t end, const PathPart& part) {
    if (begin >= end) return;
    if (!path.empty() && path.back().part == part && path.back().begin == end)
      path.back().begin = begin;
    else
      path.push_back({begin, end, part});
  };
  auto point = static_cast<uint32_t>(times_.size() - 1);
  while (point != 0) {
    if (binds_[point] == kNoSpan) {
      add(step_.begin, times_[point], {});
      break;
    }
    const Edge& e = edges_[binds_[point]];
    PathPart part = e.part;
    // What is left of a wait after its end is the call's.
    if (part.kind == PathClass::kWait) part.kind = PathClass::kCall, part.work = kNoSpan;
    add(times_[e.from], times_[point], part);
    point = e.from;
  }
  std::ranges::reverse(path);
  return path;
}

int64_t StepGraph::without(const Takes& takes) const {
  std::vector<int64_t> times(times_.size(), step_.begin);
  for (const uint32_t point : order_) {
    if (point == 0) continue;
    int64_t time = INT64_MIN;
    for (uint32_t i = first_[point]; i < first_[point + 1]; ++i) {
      const Edge& e = edges_[i];
      if (e.from == kNoSpan) continue;
      PathPart part = e.part;
      if (part.kind == PathClass::kWait) {
        if (takes(part)) continue;
        part.kind = PathClass::kCall, part.work = kNoSpan;
      }
      const bool is_taken = e.lag > 0 && takes(part);
      time = std::max(time, times[e.from] + (is_taken ? 0 : e.lag));
    }
    times[point] = time == INT64_MIN ? times_[point] : time;
  }
  return times.back() - step_.begin;
}

std::string_view StepGraph::name_of(const PathPart& part) const {
  const Timeline& t = timeline(part);
  if (part.span != kNoSpan) return t.text(t.span(part.row, part.span).name);
  return part.work == kNoSpan ? std::string_view() : t.text(t.work[part.work].name);
}

std::string_view StepGraph::place_of(const PathPart& part) const {
  const Timeline& t = timeline(part);
  if (part.span != kNoSpan) return t.place_of(part.row, part.span);
  if (part.work == kNoSpan || t.work[part.work].row == kNoSpan) return {};
  return t.place_of(t.work[part.work].row, t.work[part.work].call);
}

void PathSums::add(const StepGraph& graph, const std::vector<size_t>& processes) {
  ++steps;
  add_to(ns, graph.step().end - graph.step().begin);
  for (const PathSegment& s : graph.path()) {
    add_to(by_class[static_cast<size_t>(s.part.kind)], s.end - s.begin);
    Tally& tally = names[{s.part.kind, processes[s.part.process], std::string(graph.name_of(s.part)),
                          std::string(graph.place_of(s.part))}];
    add_to(tally.ns, s.end - s.begin);
    ++tally.count;
  }
  for (size_t i = 0; i < kPathClasses; ++i) add_to(without[i], graph.without(static_cast<PathClass>(i)));
}

std::vector<PathSums> path_sums_of(const std::vector<const TimelineIndex*>& processes) {
  std::vector<size_t> ranks;
  bool has_steps = false;
  for (size_t i = 0; i < processes.size(); ++i) {
    const Timeline& t = processes[i]->timeline();
    has_steps |= !t.steps.empty();
    if (std::ranges::any_of(t.work, [&t](const auto& w) { return is_communication_kernel(t.text(w.name)); }))
      ranks.push_back(i);
  }
  if (ranks.size() > kMostRanks) ranks.clear();
  std::vector<PathSums> sums(processes.size());
  for (size_t i = 0; i < processes.size(); ++i) {
    std::vector<size_t> numbers{i};
    if (std::ranges::find(ranks, i) != ranks.end())
      std::ranges::copy_if(ranks, std::back_inserter(numbers), [i](size_t rank) { return rank != i; });
    std::vector<const TimelineIndex*> of_graph;
    for (const size_t number : numbers) of_graph.push_back(processes[number]);
    const Timeline& t = processes[i]->timeline();
    std::vector<StepSpan> steps = t.steps;
    if (!has_steps && t.end > t.begin) steps.push_back({t.begin, t.end});
    for (const StepSpan& step : steps) sums[i].add(StepGraph(of_graph, step), numbers);
  }
  return sums;
}

}  // namespace torchprof::formats
