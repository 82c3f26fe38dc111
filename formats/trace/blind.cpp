#include "formats/trace/blind.h"

#include <algorithm>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr double kMostNs = 1e17;  // three years: a damaged file may say anything

}  // namespace

void BlindSums::add(const RecordView& record, Ticks time, TrackId track) {
  if (record.kind() == Kind::ThreadEnd) {
    thread_ends_[track] = time;
  } else if (record.kind() == Kind::BlindBegin) {
    const auto& begin = record.as<BlindBegin>();
    Sum& sum = sums_[{begin.track, begin.by}];
    ++sum.begun;
    sum.begins += time.value;
  } else if (record.kind() == Kind::BlindEnd) {
    const auto& end = record.as<BlindEnd>();
    Sum& sum = sums_[{end.track, end.by}];
    ++sum.ended;
    sum.ends += time.value;
  }
}

std::vector<Blind> BlindSums::total(const Process& process) const {
  const Ticks start = process.spool->header().start.ticks;
  const UnixNs opened = process.clock.to_unix(start);
  const auto since_start = [&](uint64_t ticks) { return process.clock.to_unix({start.value + ticks}) - opened; };
  std::vector<Blind> all;
  for (const auto& [key, sum] : sums_) {
    const auto& [track, by] = key;
    // Times count from the opening of the spool. A missing begin counts as 0, a missing end as the end of the thread or
    // of the capture.
    const uint64_t ended = sum.ends - sum.ended * start.value;
    const uint64_t begun = sum.begins - sum.begun * start.value;
    auto ns = static_cast<double>(ended >= begun ? since_start(ended - begun) : -since_start(begun - ended));
    if (sum.begun > sum.ended) {
      const auto it = thread_ends_.find(track);
      const UnixNs end = it == thread_ends_.end() ? process.capture_end : process.clock.to_unix(it->second);
      ns += static_cast<double>(end - opened) * static_cast<double>(sum.begun - sum.ended);
    }
    const std::string_view name = process.string(by);
    auto it = std::ranges::find(all, name, &Blind::by);
    if (it == all.end()) it = all.insert(it, Blind{.by = name});
    it->times += std::max(sum.begun, sum.ended);
    add_to(it->ns, static_cast<int64_t>(std::clamp(ns, 0.0, kMostNs)));
  }
  return all;
}

}  // namespace torchprof::formats
