// What waits for what in a step: threads for threads, streams for streams, calls for the device.
#include <algorithm>
#include <array>
#include <string_view>

#include "formats/io/median.h"
#include "formats/timeline/step_graph.h"

namespace torchprof::formats {
namespace {

enum class Waits : uint8_t { kNo, kOne, kAll, kAllIfIdle };

// Calls that return when work of the device has ended: for one stream or event, or for all that runs. cudaFree() waits
// only where memory is freed that the device may still use.
Waits waits_of(std::string_view call) {
  constexpr std::array<std::pair<std::string_view, Waits>, 12> kCalls = {{{"cudaStreamSynchronize", Waits::kOne},
                                                                          {"cudaEventSynchronize", Waits::kOne},
                                                                          {"cudaDeviceSynchronize", Waits::kAll},
                                                                          {"cudaFree", Waits::kAllIfIdle},
                                                                          {"cuStreamSynchronize", Waits::kOne},
                                                                          {"cuEventSynchronize", Waits::kOne},
                                                                          {"cuCtxSynchronize", Waits::kAll},
                                                                          {"hipStreamSynchronize", Waits::kOne},
                                                                          {"hipEventSynchronize", Waits::kOne},
                                                                          {"hipDeviceSynchronize", Waits::kAll},
                                                                          {"hipMemcpyWithStream", Waits::kOne},
                                                                          {"hipFree", Waits::kAllIfIdle}}};
  const auto found = std::ranges::find(kCalls, call, &std::pair<std::string_view, Waits>::first);
  return found == kCalls.end() ? Waits::kNo : found->second;
}

// Whether a call returns only when its own copy is done, if that ends inside of it.
bool is_blocking_copy(std::string_view call, std::string_view copy) {
  return call.find("emcpy") != call.npos && (call.find("Async") == call.npos || copy.find("Pageable") != copy.npos);
}

// About so much fits into the queue of a stream (CUDA 11 and 12: 1022 to 1024); then calls wait until something begins.
constexpr size_t kFullQueue = 1000;

constexpr size_t kMostStreams = 256;  // for all of which a call waits; others are left out
constexpr int kMostTried = 64;

}  // namespace

// Where all that another thread does comes inside of one stretch of the main thread, in which that runs no operator,
// and it is backward or fills at least half, the main thread waits for it.
void StepGraphBuilder::add_handovers(uint32_t process, const Lane& main) {
  const Timeline& timeline = graph_.processes_[process]->timeline();
  const auto& times = graph_.times_;
  // Of a thread each point but the first has the edge from the point before it, made last.
  std::vector<uint32_t> own(times.size(), kNoSpan);
  for (uint32_t i = 0; i < graph_.edges_.size(); ++i) own[graph_.edges_[i].to] = i;
  const auto may_wait = [&](uint32_t point) {
    const PathPart& part = graph_.edges_[own[point]].part;
    if (part.span == kNoSpan) return true;
    const SpanKind kind = timeline.span(part.row, part.span).kind;
    return kind != SpanKind::kOperator && kind != SpanKind::kCall && kind != SpanKind::kGc;
  };
  struct Stretch {
    uint32_t end = kNoSpan;  // its last point, on the main thread
    int64_t first = 0, last = 0, covered = 0;
    bool is_backward = false, is_broken = false;
  };
  for (const Lane& other : lanes_) {
    if (other.process != process || other.row == main.row) continue;
    const auto& spans = timeline.rows[other.row].spans;
    const SpansOfStep inside = spans_of(timeline.rows[other.row], begin_, end_);
    Stretch stretch;
    const auto finish = [&] {
      if (stretch.end == kNoSpan || stretch.is_broken) return;
      const uint32_t from = stretch.end - 1, to = stretch.end;
      if (!stretch.is_backward && stretch.covered * 2 < times[to] - times[from]) return;
      const auto first = point_at(other, stretch.first), last = point_at(other, stretch.last);
      if (!first || !last) return;
      const PathPart part = graph_.edges_[own[to]].part;
      add_edge(from, *first, times[*first] - times[from], part);
      graph_.edges_[own[*first]].lag = 0;  // it was idle
      add_edge(*last, to, times[to] - times[*last], part, true);
    };
    int64_t busy = inside.open.empty() ? begin_ : spans[inside.open[0]].end;
    for (uint32_t i = inside.first; i < inside.last; ++i) {
      const TimelineSpan& s = spans[i];
      if (s.begin < busy) {  // inside of the one before
        if (stretch.end != kNoSpan) stretch.is_backward |= s.is_backward;
        continue;
      }
      const auto at = std::upper_bound(times.begin() + main.first, times.begin() + main.first + main.count, s.begin);
      const auto end = static_cast<uint32_t>(at - times.begin());
      if (end == main.first || end == main.first + main.count) continue;
      if (end != stretch.end) {
        finish();
        stretch = {.end = end, .first = s.begin, .is_broken = !may_wait(end) || busy > times[end - 1]};
      }
      stretch.is_broken |= s.end > times[end];
      stretch.is_backward |= s.is_backward;
      stretch.last = s.end;
      stretch.covered += s.ns();
      busy = s.end;
    }
    finish();
  }
}

StepGraphBuilder::Stream* StepGraphBuilder::stream_of(uint32_t process, uint32_t device, uint32_t stream) {
  const auto found = std::ranges::find_if(
      streams_, [&](const Stream& s) { return s.process == process && s.device == device && s.stream == stream; });
  return found == streams_.end() ? nullptr : &*found;
}

std::optional<size_t> StepGraphBuilder::last_before(const Stream& s, int64_t launched) const {
  const auto end = std::ranges::lower_bound(s.launched, launched);
  return end == s.launched.begin() ? std::nullopt : std::optional(static_cast<size_t>(end - s.launched.begin()) - 1);
}

void StepGraphBuilder::add_stream_waits(uint32_t process) {
  const TimelineIndex& index = *graph_.processes_[process];
  const auto& waits = index.timeline().waits;
  const auto launched = [&index](uint32_t correlation, int64_t otherwise) {
    const auto call = index.call(correlation);
    return call ? index.timeline().span(call->row, call->span).begin : otherwise;
  };
  for (auto w = std::ranges::lower_bound(waits, begin_, {}, &TimelineWait::begin); w != waits.end(); ++w) {
    if (w->begin >= end_) break;
    if (w->kind != WaitKind::kStreamEvent || w->of_stream == w->stream) continue;
    Stream* waiting = stream_of(process, w->device, w->stream);
    const Stream* of = stream_of(process, w->device, w->of_stream);
    if (waiting == nullptr || of == nullptr) continue;
    const auto next = std::ranges::upper_bound(waiting->launched, launched(w->correlation, w->begin));
    const auto before = last_before(*of, launched(w->recorded, w->begin));
    if (next == waiting->launched.end() || !before) continue;
    const uint32_t end = of->first + 2 * static_cast<uint32_t>(*before) + 1;
    const auto k = static_cast<uint32_t>(next - waiting->launched.begin());
    if (time(end) > time(waiting->first + 2 * k)) continue;
    std::optional<uint32_t>& after = waiting->after[k];
    if (!after || time(*after) < time(end)) after = end;
  }
}

void StepGraphBuilder::add_wait(uint32_t process, CallAt call, const Stream& s, size_t k) {
  const TimelineSpan& span = graph_.processes_[process]->timeline().span(call.row, call.span);
  const uint32_t end = s.first + 2 * static_cast<uint32_t>(k) + 1;
  const Lane* on = lane(process, call.row);
  if (on == nullptr || time(end) <= span.begin || time(end) > span.end) return;
  const auto to = point_at(*on, time(end));
  if (!to || *to == on->first) return;
  add_edge(end, *to, time(*to) - time(end),
           {.kind = PathClass::kWait, .process = process, .row = call.row, .span = call.span, .work = s.work[k]}, true);
}

// `stream`: a device and a stream; none: as the call's name says.
void StepGraphBuilder::wait_for_last(uint32_t process, CallAt call,
                                     std::optional<std::pair<uint32_t, uint32_t>> stream) {
  const Timeline& timeline = graph_.processes_[process]->timeline();
  const TimelineSpan& span = timeline.span(call.row, call.span);
  const auto last_ended = [&](const Stream& s) -> std::optional<size_t> {
    auto k = last_before(s, span.begin);
    for (int tried = 0; k && tried < kMostTried; ++tried) {
      const int64_t end = time(s.first + 2 * static_cast<uint32_t>(*k) + 1);
      if (end <= span.end) return end > span.begin ? k : std::nullopt;
      k = *k == 0 ? std::nullopt : std::optional(*k - 1);
    }
    return {};
  };
  if (stream) {
    const Stream* s = stream_of(process, stream->first, stream->second);
    if (s == nullptr) return;
    if (const auto k = last_ended(*s)) add_wait(process, call, *s, *k);
    return;
  }
  const Waits waits = waits_of(timeline.text(span.name));
  std::vector<std::pair<const Stream*, size_t>> found;
  size_t tried = 0;
  for (const Stream& s : streams_) {
    if (s.process != process || ++tried > kMostStreams) continue;
    const auto last = last_before(s, span.begin);
    if (!last) continue;
    if (waits == Waits::kAllIfIdle && time(s.first + 2 * static_cast<uint32_t>(*last) + 1) > span.end) return;
    if (const auto k = last_ended(s)) found.emplace_back(&s, *k);
  }
  if (waits == Waits::kOne && found.size() > 1) {
    const auto end = [this](const auto& each) {
      return time(each.first->first + 2 * static_cast<uint32_t>(each.second) + 1);
    };
    found = {*std::ranges::max_element(found, {}, end)};
  }
  for (const auto& [s, k] : found) add_wait(process, call, *s, k);
}

// A call that launches work while the queue of its stream is full ends when some work has begun. The point of that.
std::optional<uint32_t> StepGraphBuilder::begun_of_full_queue(const Stream& s, size_t k) const {
  const TimelineSpan* call = call_of(s, k);
  if (call == nullptr || k < kFullQueue) return {};
  const Timeline& timeline = graph_.processes_[s.process]->timeline();
  const auto begin_of = [&timeline](uint32_t i) { return timeline.work[i].begin; };
  const auto begun = std::ranges::upper_bound(s.work, call->end, {}, begin_of) - s.work.begin();
  if (begun == 0 || k + 1 < static_cast<size_t>(begun) + kFullQueue) return {};
  const uint32_t point = s.first + 2 * static_cast<uint32_t>(begun - 1);
  return time(point) > call->begin ? std::optional(point) : std::nullopt;
}

void StepGraphBuilder::add_full_queues(uint32_t process) {
  const Timeline& timeline = graph_.processes_[process]->timeline();
  for (const Stream& s : streams_) {
    if (s.process != process) continue;
    std::vector<std::pair<size_t, uint32_t>> full;
    std::vector<int64_t> others;  // how long calls take that do not wait
    for (size_t k = 0; k < s.work.size(); ++k) {
      if (const auto point = begun_of_full_queue(s, k))
        full.emplace_back(k, *point);
      else if (const TimelineSpan* call = call_of(s, k))
        others.push_back(call->ns());
    }
    const int64_t usual = median_of(std::move(others));
    for (const auto& [k, point] : full) {
      const TimelineWork& w = timeline.work[s.work[k]];
      const Lane& on = *lane(process, w.row);
      const auto to = point_at(on, time(point));
      if (!to || *to == on.first) continue;
      add_edge(point, *to, time(*to) - time(point),
               {.kind = PathClass::kCall, .process = process, .row = w.row, .span = w.call}, true);
      graph_.edges_.back().usual = usual;
    }
  }
}

void StepGraphBuilder::add_call_waits(uint32_t process) {
  const TimelineIndex& index = *graph_.processes_[process];
  const Timeline& timeline = index.timeline();
  std::map<std::pair<uint32_t, uint32_t>, bool> known;  // calls of which CUPTI said what they waited for
  const auto& waits = timeline.waits;
  for (auto w = std::ranges::lower_bound(waits, begin_, {}, &TimelineWait::begin); w != waits.end(); ++w) {
    if (w->begin >= end_) break;
    if (w->kind != WaitKind::kStream && w->kind != WaitKind::kEvent) continue;
    const auto call = index.call(w->correlation);
    if (!call) continue;
    const uint32_t number = w->kind == WaitKind::kStream ? w->stream : w->of_stream;
    const Stream* s = stream_of(process, w->device, number);
    if (s == nullptr) continue;
    known[{call->row, call->span}] = true;
    const auto record = w->kind == WaitKind::kEvent ? index.call(w->recorded) : std::nullopt;
    if (!record) {
      wait_for_last(process, *call, std::pair(w->device, number));
    } else if (const auto k = last_before(*s, timeline.span(record->row, record->span).begin)) {
      add_wait(process, *call, *s, *k);
    }
  }
  add_full_queues(process);
  for (const Lane& each : lanes_) {
    if (each.process != process) continue;
    const auto& spans = timeline.rows[each.row].spans;
    const SpansOfStep inside = spans_of(timeline.rows[each.row], begin_, end_);
    for (uint32_t i = inside.first; i < inside.last; ++i)
      if (spans[i].kind == SpanKind::kCall && waits_of(timeline.text(spans[i].name)) != Waits::kNo &&
          !known.contains({each.row, i}))
        wait_for_last(process, {each.row, i}, {});
  }
  for (const Stream& s : streams_) {
    if (s.process != process) continue;
    for (size_t k = 0; k < s.work.size(); ++k) {
      const TimelineWork& w = timeline.work[s.work[k]];
      const TimelineSpan* call = w.kind == WorkKind::kCopy ? timeline.call_of(w) : nullptr;
      if (call != nullptr && is_blocking_copy(timeline.text(call->name), timeline.text(w.name)))
        add_wait(process, {w.row, w.call}, s, k);
    }
  }
}

}  // namespace torchprof::formats
