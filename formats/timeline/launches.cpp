#include "formats/timeline/launches.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "formats/io/median.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// "Memcpy HtoD (Pageable -> Device)".
std::string_view kind_of(std::string_view name) { return name.substr(0, std::min(name.find(" ("), name.size())); }

// `changes`: time and whether work was launched (0) or begun (1): at the same time calls come first.
void add_queue(StreamLaunches& stream, std::vector<std::pair<int64_t, int>>& changes, std::vector<int64_t>& lengths) {
  std::ranges::sort(changes);
  int64_t length = 0;
  for (const auto& [time, has_begun] : changes) {
    length += has_begun != 0 ? -1 : 1;
    if (lengths.empty()) stream.queue_min = stream.queue_max = length;
    stream.queue_min = std::min(stream.queue_min, length);
    stream.queue_max = std::max(stream.queue_max, length);
    stream.queue_mean += static_cast<double>(length);  // the sum, for now
    lengths.push_back(length);
  }
  changes.clear();
}

void add_rate(CopyRates& copies, const TimelineWork& w) {
  ++copies.works;
  add_to(copies.ns, w.ns());
  copies.bytes += w.bytes;
  if (w.bytes == 0 || w.ns() == 0) return;
  const double rate = static_cast<double>(w.bytes) / static_cast<double>(w.ns());
  copies.rate_min = copies.rated == 0 ? rate : std::min(copies.rate_min, rate);
  copies.rate_max = std::max(copies.rate_max, rate);
  copies.rate_sum += rate;
  ++copies.rated;
}

}  // namespace

Launches launches_of(const TimelineIndex& index) {
  const Timeline& timeline = index.timeline();
  const std::vector<Stretch> stretches = stretches_of(timeline);
  Launches result;
  for (const StreamWork& s : index.streams()) {
    StreamLaunches stream{.device = s.device, .stream = s.stream};
    std::vector<int64_t> delays, lengths;
    std::vector<std::pair<int64_t, int>> changes;
    for (const Stretch& stretch : stretches) {
      for (const uint32_t i : work_in(timeline, s.work, stretch)) {
        const TimelineWork& w = timeline.work[i];
        if (w.kind != WorkKind::kKernel) add_rate(result.copies[std::string(kind_of(timeline.text(w.name)))], w);
        const TimelineSpan* call = timeline.call_of(w);
        if (call == nullptr) continue;
        ++stream.works;
        add_to(stream.call_ns, call->ns());
        add_to(stream.work_ns, w.ns());
        delays.push_back(std::max<int64_t>(0, w.begin - call->end));
        add_to(stream.delay_ns, delays.back());
        stream.delay_max_ns = std::max(stream.delay_max_ns, delays.back());
        stream.short_works += w.ns() < call->ns();
        stream.slow_calls += call->ns() > kSlowCall;
        stream.late_works += delays.back() > kLate;
        changes.emplace_back(call->begin, 0);
        changes.emplace_back(w.begin, 1);
      }
      add_queue(stream, changes, lengths);
    }
    if (stream.works == 0) continue;
    stream.queue_mean /= static_cast<double>(lengths.size());
    stream.queue_median = median_of(std::move(lengths));
    stream.delay_median_ns = median_of(std::move(delays));
    result.streams.push_back(stream);
  }
  return result;
}

}  // namespace torchprof::formats
