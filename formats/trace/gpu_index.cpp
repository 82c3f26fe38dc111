#include "formats/trace/gpu_index.h"

#include <algorithm>
#include <tuple>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// A sample may take ten microseconds and four times the quickest: one that was interrupted says little.
constexpr int64_t kQuick = 10'000, kTimesQuickest = 4;

int64_t clamp_ns(uint64_t ns) { return static_cast<int64_t>(std::min(ns, uint64_t{kLatest})); }

}  // namespace

void GpuTime::finish(const ProcessClock& clock) {
  int64_t quickest = INT64_MAX;
  const auto width = [&clock](const Raw& r) { return clock.to_unix({r.after}) - clock.to_unix({r.before}); };
  for (const Raw& r : raw_)
    if (width(r) >= 0) quickest = std::min(quickest, width(r));
  for (const Raw& r : raw_) {
    const int64_t took = width(r);
    if (took < 0 || (took - kQuick) / kTimesQuickest > quickest) continue;
    const int64_t unix_ns = sum(clock.to_unix({r.before}).value, took / 2);
    samples_.push_back({clamp_ns(r.cupti), clamp_ns(r.cupti) - unix_ns});
    widest_ns_ = std::max(widest_ns_, took);
  }
  raw_ = {};
  clock_ = clock;
  std::ranges::sort(samples_, {}, &Sample::cupti);
}

int64_t GpuTime::to_unix(uint64_t cupti) const { return std::clamp(unbound(clamp_ns(cupti)), kEarliest, kLatest); }

int64_t GpuTime::unbound(int64_t t) const {
  if (samples_.empty()) return clock_.corrected(t);
  const auto after = std::ranges::lower_bound(samples_, t, {}, &Sample::cupti);
  if (after == samples_.begin()) return difference(t, after->ahead);
  const Sample& before = *(after - 1);
  if (after == samples_.end()) return difference(t, before.ahead);
  const double part = static_cast<double>(t - before.cupti) / static_cast<double>(after->cupti - before.cupti);
  const double more = part * (static_cast<double>(after->ahead) - static_cast<double>(before.ahead));
  return difference(difference(t, before.ahead), static_cast<int64_t>(std::clamp(more, -0x1p62, 0x1p62)));
}

void GpuIndex::add(uint32_t chunk, const RecordView& record) {
  const auto word = static_cast<uint32_t>((record.place() - spool_.chunks()[chunk].records.data()) / 8);
  const auto call = [&](uint64_t time) { return Call{clamp_ns(time), chunk, word}; };
  const auto activity = [&](uint32_t correlation) { activities_.push_back({correlation, chunk, word, record.kind()}); };
  switch (record.kind()) {
    case Kind::GpuApi:
      return calls_[record.as<GpuApi>().thread].push_back(call(record.as<GpuApi>().start));
    case Kind::GpuKernel:
      note(record.as<GpuKernel>());
      return activity(record.as<GpuKernel>().correlation);
    case Kind::GpuCopy:
      note(record.as<GpuCopy>());
      return activity(record.as<GpuCopy>().correlation);
    case Kind::GpuSet:
      note(record.as<GpuSet>());
      return activity(record.as<GpuSet>().correlation);
    case Kind::GpuSync:
      return activity(record.as<GpuSync>().correlation);
    case Kind::GpuEvent:
      note(record.as<GpuEvent>());
      return activity(record.as<GpuEvent>().correlation);
    case Kind::GpuOverhead:
      return overheads_.push_back(call(record.as<GpuOverhead>().start));
    case Kind::GpuMemory:
      return memory_.push_back(call(record.as<GpuMemory>().time));
    case Kind::GpuMemoryPool:
      return pools_.push_back(call(record.as<GpuMemoryPool>().time));
    case Kind::GpuEnvironment:
      return environment_.push_back(call(record.as<GpuEnvironment>().time));
    case Kind::GpuClock:
      return time_.add(record.as<GpuClock>());
    case Kind::GpuDropped:
      return note(record.as<GpuDropped>(), record.time(spool_.chunks()[chunk].base));
    default:
      return;
  }
}

void GpuIndex::note(const GpuKernel& kernel) {
  ++kernels_;
  timeless_ += kernel.start == 0;
  device_of_context_.try_emplace(kernel.context, kernel.device);
}

void GpuIndex::note(const GpuCopy& copy) {
  timeless_ += copy.start == 0;
  if (copy.src_context != kNoGpuNumber) device_of_context_.try_emplace(copy.src_context, copy.src_device);
  if (copy.dst_context != kNoGpuNumber) device_of_context_.try_emplace(copy.dst_context, copy.dst_device);
  device_of_context_.try_emplace(copy.context, copy.device);
}

void GpuIndex::note(const GpuSet& set) {
  timeless_ += set.start == 0;
  device_of_context_.try_emplace(set.context, set.device);
}

void GpuIndex::note(const GpuEvent& event) {
  events_.push_back({event.context, event.event, event.correlation, event.stream});
}

void GpuIndex::note(const GpuDropped& dropped, Ticks time) {
  if (dropped.loss == GpuLoss::kAside || dropped.loss == GpuLoss::kBack) {
    turns_.emplace_back(time, dropped.loss);
    return;
  }
  const auto loss = static_cast<size_t>(dropped.loss);
  uint64_t& sum = lost_[loss < lost_.size() ? loss : static_cast<size_t>(GpuLoss::kMalformed)];
  if (__builtin_add_overflow(sum, dropped.count, &sum)) sum = UINT64_MAX;
}

void GpuIndex::define(const RecordView& record) {
  if (record.kind() == Kind::GpuDeviceDef) {
    devices_[record.as<GpuDeviceDef>().device] = record.as<GpuDeviceDef>();
  } else if (record.kind() == Kind::GpuContextDef) {
    device_of_context_[record.as<GpuContextDef>().context] = record.as<GpuContextDef>().device;
  } else if (record.kind() == Kind::GpuStuckDef) {
    const auto& stuck = record.as<GpuStuckDef>();
    if (stuck.correlation == 0)
      stuck_.erase({stuck.context, stuck.stream});
    else
      stuck_[{stuck.context, stuck.stream}] = stuck;
  } else if (record.kind() == Kind::ThreadHandleDef) {
    tracks_of_handle_[record.as<ThreadHandleDef>().handle].push_back(record.as<ThreadHandleDef>().track);
  }
}

void GpuIndex::find_gaps(const ProcessClock& clock, Ticks end) {
  std::ranges::stable_sort(turns_, {}, [](const auto& turn) { return turn.first; });
  turns_.emplace_back(end, GpuLoss::kBack);
  const Ticks* aside = nullptr;
  for (const auto& [time, turn] : turns_) {
    if (turn == GpuLoss::kAside && aside == nullptr) {
      ++gaps_.count;
      aside = &time;
    } else if (turn == GpuLoss::kBack && aside != nullptr) {
      add_to(gaps_.ns, std::max<int64_t>(0, clock.to_unix(time) - clock.to_unix(*aside)));
      aside = nullptr;
    }
  }
}

void GpuIndex::finish(const ProcessClock& clock, Ticks end) {
  time_.finish(clock);
  for (auto& [thread, calls] : calls_) std::ranges::stable_sort(calls, {}, &Call::start);
  for (std::vector<Call>* list : {&memory_, &pools_, &environment_}) std::ranges::stable_sort(*list, {}, &Call::start);
  std::ranges::stable_sort(activities_, [this](const Activity& a, const Activity& b) {
    if (a.correlation != b.correlation) return a.correlation < b.correlation;
    return a.correlation != 0 && span_of(*this, a).start < span_of(*this, b).start;
  });
  std::ranges::sort(events_, {}, [](const Event& e) { return std::tuple(e.context, e.event, e.correlation); });
  find_faults();
  find_overlaps();
  find_gaps(clock, end);
}

int64_t GpuIndex::next_begin(size_t activity) const {
  const auto known = next_begins_.find(activity);
  return known == next_begins_.end() ? kLatest : known->second;
}

// Memory while it runs: 32 bytes for each activity.
void GpuIndex::find_overlaps() {
  struct Work {
    uint64_t stream;  // with the device
    GpuSpan span;
    size_t number;
  };
  const auto stream_of = [](const auto& r) { return pair_key(r.device, r.stream); };
  std::vector<Work> work;
  RecordRoom room;
  for (size_t i = 0; i < activities_.size(); ++i) {
    const Activity& a = activities_[i];
    if (!runs_on_device(a.kind)) continue;
    const uint64_t stream = a.kind == Kind::GpuKernel ? stream_of(record<GpuKernel>(a, room))
                            : a.kind == Kind::GpuCopy ? stream_of(record<GpuCopy>(a, room))
                                                      : stream_of(record<GpuSet>(a, room));
    if (const GpuSpan span = span_of(*this, a); span.start != 0) work.push_back({stream, span, i});
  }
  std::ranges::sort(work, {}, [](const Work& w) { return std::tuple(w.stream, w.span.start, w.span.end); });
  for (size_t i = 0; i + 1 < work.size(); ++i) {
    const Work &w = work[i], &next = work[i + 1];
    if (next.stream != w.stream || next.span.start < w.span.end) continue;
    const int64_t next_begin = time_.to_unix(next.span.start);
    if (next_begin < w.span.end_after({time_.to_unix(w.span.start)}, {kLatest}).value)
      next_begins_.emplace(w.number, next_begin);
  }
}

void GpuIndex::find_faults() {
  RecordRoom room;
  for (const auto& [thread, calls] : calls_) {
    for (const Call& call : calls) {
      const Range range = of_correlation(record<GpuApi>(call, room).correlation);
      for (size_t i = range.begin; i < range.end; ++i) {
        if (!runs_on_device(activities_[i].kind)) continue;
        const uint64_t start = span_of(*this, activities_[i]).start;
        if (start == 0 || clamp_ns(start) >= call.start) continue;
        ++faults_.count;
        faults_.most_ns = std::max(faults_.most_ns, call.start - clamp_ns(start));
      }
    }
  }
}

GpuIndex::Range GpuIndex::of_correlation(uint32_t correlation) const {
  if (correlation == 0) return {0, 0};
  const auto begin = std::ranges::lower_bound(activities_, correlation, {}, &Activity::correlation);
  auto end = begin;
  while (end != activities_.end() && end->correlation == correlation) ++end;
  return {static_cast<size_t>(begin - activities_.begin()), static_cast<size_t>(end - activities_.begin())};
}

uint32_t GpuIndex::device_of(uint32_t context) const {
  const auto it = device_of_context_.find(context);
  return it == device_of_context_.end() ? 0 : it->second;
}

const std::vector<TrackId>* GpuIndex::tracks_of(uint32_t handle) const {
  const auto it = tracks_of_handle_.find(handle);
  return it == tracks_of_handle_.end() ? nullptr : &it->second;
}

std::optional<GpuIndex::EventRecord> GpuIndex::recorded(uint32_t context, uint32_t event, uint32_t before) const {
  const auto it = std::ranges::upper_bound(events_, std::tuple(context, event, before), {}, [](const Event& e) {
    return std::tuple(e.context, e.event, e.correlation);
  });
  if (it == events_.begin()) return std::nullopt;
  const Event& last = *(it - 1);
  if (last.context != context || last.event != event) return std::nullopt;
  return EventRecord{last.correlation, last.stream};
}

GpuSpan span_of(const GpuIndex& index, const GpuIndex::Activity& a) {
  const auto span = [](const auto& r) { return GpuSpan{r.start, std::max(r.start, r.end)}; };
  RecordRoom room;
  switch (a.kind) {
    case Kind::GpuKernel:
      return span(index.record<GpuKernel>(a, room));
    case Kind::GpuCopy:
      return span(index.record<GpuCopy>(a, room));
    case Kind::GpuSet:
      return span(index.record<GpuSet>(a, room));
    case Kind::GpuSync:
      return span(index.record<GpuSync>(a, room));
    default:
      return {};
  }
}

}  // namespace torchprof::formats
