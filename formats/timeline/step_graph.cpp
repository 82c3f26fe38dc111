#include "formats/timeline/step_graph.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "formats/analysis/step_parts.h"
#include "formats/io/median.h"
#include "formats/ranks/calls.h"

namespace torchprof::formats {
namespace {

constexpr uint32_t kStart = 0;  // the point of the step's begin

PathPart part_of(const Timeline& timeline, uint32_t process, uint32_t work) {
  const TimelineWork& w = timeline.work[work];
  PathClass kind = w.kind == WorkKind::kKernel ? PathClass::kKernel : PathClass::kCopy;
  if (is_communication_kernel(timeline.text(w.name))) kind = PathClass::kCommunication;
  return {.kind = kind, .process = process, .work = work};
}

}  // namespace

StepGraph::StepGraph(std::vector<const TimelineIndex*> processes, const StepSpan& step)
    : processes_(std::move(processes)), step_(step) {
  StepGraphBuilder(*this).run();
  settle();
}

StepGraphBuilder::StepGraphBuilder(StepGraph& graph)
    : graph_(graph), begin_(graph.step_.begin), end_(graph.step_.end) {}

void StepGraphBuilder::run() {
  add_point(begin_);
  for (uint32_t p = 0; p < graph_.processes_.size(); ++p) {
    const TimelineIndex& index = *graph_.processes_[p];
    const auto& rows = index.timeline().rows;
    const uint32_t main = index.main_row(graph_.step_);
    for (uint32_t row = 0; row < rows.size(); ++row)
      if (!rows[row].is_overflow) add_thread(p, row, row == main);
    if (const Lane* of_main = lane(p, main)) add_handovers(p, Lane(*of_main));
    for (const StreamWork& stream : index.streams()) add_stream(p, stream);
    add_stream_waits(p);
    add_call_waits(p);
  }
  add_launches();
  add_collectives();
  add_end();
}

uint32_t StepGraphBuilder::add_point(int64_t time) {
  graph_.times_.push_back(time);
  return static_cast<uint32_t>(graph_.times_.size() - 1);
}

void StepGraphBuilder::add_edge(uint32_t from, uint32_t to, int64_t lag, const PathPart& part, bool may_be_late) {
  if (time(from) <= time(to)) graph_.edges_.push_back({from, to, lag, part, may_be_late});
}

// A point wherever a span begins or ends. From one to the next the innermost span ran.
void StepGraphBuilder::add_thread(uint32_t process, uint32_t row, bool is_main) {
  const Timeline& timeline = graph_.processes_[process]->timeline();
  const auto& spans = timeline.rows[row].spans;
  const SpansOfStep inside = spans_of(timeline.rows[row], begin_, end_);
  if (inside.open.empty() && inside.first == inside.last) return;
  struct Open {
    uint32_t span;
    int64_t end;
    PathClass kind;
  };
  std::vector<Open> open;
  uint32_t last = kNoSpan;
  bool goes_on = inside.last < spans.size();
  const auto point = [&](int64_t at) {
    if (last == kNoSpan) {
      last = add_point(at);
      add_edge(kStart, last, at - begin_, {});
    } else if (at > time(last)) {
      PathPart part{.process = process, .row = row};
      if (!open.empty()) part.kind = open.back().kind, part.span = open.back().span;
      const uint32_t next = add_point(at);
      add_edge(last, next, at - time(last), part);
      last = next;
    }
  };
  const auto enter = [&](uint32_t i) {
    const TimelineSpan& s = spans[i];
    goes_on = goes_on || s.end >= end_;
    PathClass kind = s.kind == SpanKind::kCall ? PathClass::kCall : PathClass::kHost;
    if (s.kind == SpanKind::kOperator || s.kind == SpanKind::kAnnotation) {
      if (timeline.role(s.name) == NameRole::kLoading) kind = PathClass::kLoader;
      if (is_backend_range(timeline.text(s.name))) kind = PathClass::kCommunication;
    }
    int64_t end = std::min(s.end, end_);
    if (!open.empty()) {
      end = std::min(end, open.back().end);
      // What a loader does while the program waits for it is loading.
      if (const PathClass around = open.back().kind;
          around == PathClass::kLoader || around == PathClass::kCommunication)
        kind = around;
    }
    open.push_back({i, end, kind});
  };
  const uint32_t first = static_cast<uint32_t>(graph_.times_.size());
  if (is_main || !inside.open.empty()) point(begin_);
  for (const uint32_t i : inside.open) enter(i);
  for (uint32_t i = inside.first; i < inside.last; ++i) {
    while (!open.empty() && open.back().end <= spans[i].begin) point(open.back().end), open.pop_back();
    point(spans[i].begin);
    enter(i);
  }
  for (; !open.empty(); open.pop_back()) point(open.back().end);
  // A thread that does nothing any more does not wait either: its GPU work may be what the step ends with.
  if (is_main && goes_on) point(end_);
  if (is_main && process == 0) main_end_ = last;
  lane_of_[{process, row}] = lanes_.size();
  lanes_.push_back({process, row, first, static_cast<uint32_t>(graph_.times_.size()) - first});
}

const StepGraphBuilder::Lane* StepGraphBuilder::lane(uint32_t process, uint32_t row) const {
  const auto found = lane_of_.find({process, row});
  return found == lane_of_.end() ? nullptr : &lanes_[found->second];
}

std::optional<uint32_t> StepGraphBuilder::point_at(const Lane& lane, int64_t at) const {
  const auto begin = graph_.times_.begin() + lane.first;
  const auto found = std::lower_bound(begin, begin + lane.count, at);
  return found == begin + lane.count ? std::nullopt : std::optional(lane.first + static_cast<uint32_t>(found - begin));
}

void StepGraphBuilder::add_stream(uint32_t process, const StreamWork& from) {
  const Timeline& timeline = graph_.processes_[process]->timeline();
  const auto at = [&timeline](uint32_t i) { return timeline.work[i].begin; };
  Stream s{process, from.device, from.stream, static_cast<uint32_t>(graph_.times_.size())};
  auto k = static_cast<size_t>(std::ranges::lower_bound(from.work, begin_, {}, at) - from.work.begin());
  if (k > 0 && timeline.work[from.work[k - 1]].end > begin_) --k;
  int64_t launched = INT64_MIN;
  for (; k < from.work.size(); ++k) {
    const TimelineWork& w = timeline.work[from.work[k]];
    const TimelineSpan* call = timeline.call_of(w);
    if (w.begin >= end_ && (call == nullptr || !is_in_step(call->begin))) break;
    const auto begin = add_point(std::max(w.begin, begin_));
    const PathPart part = part_of(timeline, process, from.work[k]);
    const auto end = add_point(std::max(w.end, begin_));
    if (part.kind == PathClass::kCommunication)
      collectives_.push_back({process, from.work[k], begin});
    else
      add_edge(begin, end, time(end) - time(begin), part);
    if (call != nullptr) launched = std::max(launched, call->begin);
    s.work.push_back(from.work[k]);
    s.launched.push_back(launched);
  }
  s.after.resize(s.work.size());
  if (!s.work.empty()) streams_.push_back(std::move(s));
}

const TimelineSpan* StepGraphBuilder::call_of(const Stream& s, size_t k) const {
  const Timeline& timeline = graph_.processes_[s.process]->timeline();
  const TimelineWork& w = timeline.work[s.work[k]];
  const TimelineSpan* call = timeline.call_of(w);
  return call == nullptr || call->begin < begin_ || lane(s.process, w.row) == nullptr ? nullptr : call;
}

// Of work that was alone on its stream, and of work that was launched long before its turn.
StepGraphBuilder::Usual StepGraphBuilder::usual_delays() const {
  std::vector<int64_t> launch[2], next;
  for (const bool is_second : {false, true}) {
    for (const Stream& s : streams_) {
      for (size_t k = 0; k < s.work.size(); ++k) {
        const TimelineSpan* call = call_of(s, k);
        const int64_t begin = time(s.first + 2 * static_cast<uint32_t>(k));
        if (call == nullptr || begin < call->begin || s.after[k]) continue;
        const int64_t before = k == 0 ? INT64_MIN : time(s.first + 2 * static_cast<uint32_t>(k) - 1);
        const bool is_copy = graph_.processes_[s.process]->timeline().work[s.work[k]].kind != WorkKind::kKernel;
        if (!is_second && before <= call->begin) launch[is_copy].push_back(begin - call->begin);
        if (is_second && before > call->end && before <= begin) next.push_back(begin - before);
      }
    }
  }
  return {{median_of(std::move(launch[0])), median_of(std::move(launch[1]))}, median_of(std::move(next))};
}

void StepGraphBuilder::add_launches() {
  const Usual usual = usual_delays();
  for (const Stream& s : streams_) {
    const Timeline& timeline = graph_.processes_[s.process]->timeline();
    for (size_t k = 0; k < s.work.size(); ++k) {
      const TimelineWork& w = timeline.work[s.work[k]];
      const uint32_t point = s.first + 2 * static_cast<uint32_t>(k);
      const int64_t begin = time(point);
      const size_t edges = graph_.edges_.size();
      const PathPart delay{.kind = PathClass::kLaunchDelay, .process = s.process, .work = s.work[k]};
      const auto after = [&](uint32_t before) {
        add_edge(before, point, std::min(usual.next, begin - time(before)), delay);
      };
      // Work may overlap the end of the work before it on its stream.
      if (k > 0) time(point - 1) <= begin ? after(point - 1) : after(point - 2);
      if (s.after[k]) after(*s.after[k]);
      if (const TimelineSpan* call = call_of(s, k); call != nullptr && call->begin <= begin) {
        const bool is_inside = begin < call->end;
        const int64_t ready = std::min(begin, call->begin + usual.launch[w.kind != WorkKind::kKernel]);
        const auto from = point_at(*lane(s.process, w.row), is_inside ? call->begin : call->end);
        PathPart part = delay;
        if (is_inside) part = {.kind = PathClass::kCall, .process = s.process, .row = w.row, .span = w.call};
        if (from) add_edge(*from, point, std::max<int64_t>(0, ready - time(*from)), part);
      }
      if (graph_.edges_.size() == edges) add_edge(kStart, point, begin - begin_, {});
    }
  }
}

// All ranks have to come; from then on it takes the same time.
void StepGraphBuilder::add_collectives() {
  std::vector<std::vector<Collective>> of_process(graph_.processes_.size());
  for (const Collective& c : collectives_) of_process[c.process].push_back(c);
  for (auto& list : of_process)
    std::ranges::stable_sort(list, {}, [this](const Collective& c) { return time(c.begin_point); });
  const auto name = [this](const Collective& c) {
    const Timeline& timeline = graph_.processes_[c.process]->timeline();
    return timeline.text(timeline.work[c.work].name);
  };
  for (const Collective& c : collectives_) {
    const uint32_t end = c.begin_point + 1;
    const PathPart part{.kind = PathClass::kCommunication, .process = c.process, .work = c.work};
    add_edge(c.begin_point, end, time(end) - time(c.begin_point), part, true);
    for (uint32_t p = 0; p < of_process.size(); ++p) {
      if (p == c.process) continue;
      // Of the latest ones that run at the same time, the one that ends at nearly the same time.
      constexpr int kMostTried = 64;
      const auto& list = of_process[p];
      auto other = std::ranges::lower_bound(list, time(end), {}, [this](const auto& o) { return time(o.begin_point); });
      const Collective* best = nullptr;
      const auto apart = [&](const Collective& o) { return std::abs(time(o.begin_point + 1) - time(end)); };
      for (int tried = 0; tried < kMostTried && other != list.begin(); ++tried) {
        --other;
        if (time(other->begin_point + 1) <= time(c.begin_point) || name(*other) != name(c)) continue;
        if (best == nullptr || apart(*other) < apart(*best)) best = &*other;
      }
      if (best != nullptr) add_edge(best->begin_point, end, 0, part, true);
    }
  }
}

void StepGraphBuilder::add_end() {
  const uint32_t end = add_point(end_);
  std::vector<uint32_t> last;
  if (main_end_) last.push_back(*main_end_);
  for (const Stream& s : streams_)
    if (s.process == 0) last.push_back(s.first + 2 * static_cast<uint32_t>(s.work.size()) - 1);
  // The path goes back from the first of these edges.
  if (main_end_ && time(*main_end_) < end_)
    std::ranges::stable_sort(last, std::greater(), [this](uint32_t p) { return std::min(time(p), end_); });
  for (const uint32_t point : last) graph_.edges_.push_back({point, end, std::min<int64_t>(0, end_ - time(point)), {}});
  if (!main_end_) add_edge(kStart, end, end_ - begin_, {});
}

}  // namespace torchprof::formats
