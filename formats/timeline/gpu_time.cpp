#include "formats/timeline/gpu_time.h"

#include <algorithm>
#include <tuple>

#include "formats/analysis/step_parts.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

size_t bit_of(size_t kind) { return size_t{1} << kind; }

struct Change {
  int64_t time;
  uint8_t kind;  // number of the bit
  int8_t by;
};

void add_stretch(DeviceTime& device, std::vector<Change>& changes) {
  if (changes.empty()) return;
  std::ranges::sort(changes, {}, &Change::time);
  std::array<int64_t, 3> running{};
  int64_t before = changes.front().time;
  for (const Change& c : changes) {
    size_t bits = 0;
    for (size_t kind = 0; kind < running.size(); ++kind)
      if (running[kind] > 0) bits |= bit_of(kind);
    add_to(device.exactly[bits], c.time - before);
    add_to(device.ns, c.time - before);
    before = c.time;
    running[c.kind] += c.by;
  }
}

void add_stretch(StreamTime& stream, const Timeline& timeline, std::span<const uint32_t> work) {
  const int64_t first = work.empty() ? 0 : timeline.work[work.front()].begin;
  int64_t end = first;
  for (const uint32_t i : work) {
    const TimelineWork& w = timeline.work[i];
    if (w.begin > end) {
      const TimelineSpan* call = timeline.call_of(w);
      const int64_t gap = w.begin - end;
      int64_t& cause = call != nullptr && call->begin > end ? stream.host_wait_ns
                       : gap < kLongestGap                  ? stream.kernel_wait_ns
                                                            : stream.other_wait_ns;
      add_to(cause, gap);
    }
    add_to(stream.busy_ns, std::max<int64_t>(0, w.end - std::max(w.begin, end)));
    end = std::max(end, w.end);
  }
  stream.works += work.size();
  add_to(stream.ns, end - first);
}

}  // namespace

int64_t DeviceTime::any(size_t bits) const {
  int64_t ns = 0;
  for (size_t i = 0; i < exactly.size(); ++i)
    if ((i & bits) != 0) add_to(ns, exactly[i]);
  return ns;
}

GpuTimes gpu_times_of(const TimelineIndex& index) {
  const Timeline& timeline = index.timeline();
  GpuTimes times;
  for (const StreamWork& s : index.streams()) times.streams.push_back({.device = s.device, .stream = s.stream});
  for (const Stretch& stretch : stretches_of(timeline)) {
    std::map<uint32_t, std::vector<Change>> changes;
    for (size_t i = 0; i < index.streams().size(); ++i) {
      const auto work = work_in(timeline, index.streams()[i].work, stretch);
      add_stretch(times.streams[i], timeline, work);
      for (const uint32_t each : work) {
        const TimelineWork& w = timeline.work[each];
        const bool is_communication = is_communication_kernel(timeline.text(w.name));
        const uint8_t kind = is_communication ? 1 : (w.kind == WorkKind::kKernel ? 0 : 2);
        auto& of_device = changes[w.device];
        of_device.push_back({w.begin, kind, 1});
        of_device.push_back({w.end, kind, -1});
      }
    }
    for (auto& [device, list] : changes) add_stretch(times.devices[device], list);
  }
  std::erase_if(times.streams, [](const StreamTime& s) { return s.works == 0; });
  return times;
}

}  // namespace torchprof::formats
