#include "formats/timeline/thread_looks.h"

#include <algorithm>

#include "formats/io/sum.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kUsualPause = 20'000'000;  // between two looks, where nobody has chosen another one

int64_t part_of(int64_t ns, int64_t part, int64_t whole) {
  return whole <= 0
             ? 0
             : static_cast<int64_t>(static_cast<double>(ns) * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

int64_t ThreadAccount::waited_ns() const {
  int64_t all = 0;
  for (const auto& [what, ns] : waits) add_to(all, ns);
  return all;
}

int64_t ThreadAccount::all_ns() const { return sum(sum(ran_ns, queued_ns), waited_ns()); }

WaitsFor ThreadAccount::waits_most_for() const {
  // Of one kind, whatever its names are.
  std::map<SampledWait, int64_t> kinds;
  for (const auto& [what, ns] : waits) add_to(kinds[what.wait], ns);
  const auto kind = std::ranges::max_element(kinds, {}, [](const auto& each) { return each.second; });
  if (kind == kinds.end() || kind->second < waited_ns() / 2) return {};
  WaitsFor most{.wait = kind->first};
  for (const auto& [what, ns] : waits)
    if (what.wait == kind->first && ns >= kind->second / 2) most = what;
  return most;
}

ThreadLooks::ThreadLooks(const Timeline& timeline, uint32_t row) : timeline_(timeline) {
  int64_t waited = 0, all = 0;
  for (const TimelineSample& s : timeline.samples) {
    if (s.wait != SampledWait::kUnknown) knows_waits_ = true;
    add_to(waited, s.waited_ns());
    add_to(all, s.ns());
    if (s.row == row) looks_.push_back(&s);
  }
  // Threads that never wait have no waits to be known.
  if (waited < all / 20) knows_waits_ = true;
}

double ThreadLooks::weight(const TimelineSample& look) {
  const bool goes_on = look.ran_ns == 0 && look.queued_ns == 0 && look.wait != SampledWait::kUnknown;
  return goes_on ? std::max(1.0, static_cast<double>(look.ns()) / static_cast<double>(kUsualPause)) : 1;
}

WaitsFor ThreadLooks::waits_for(const TimelineSample& look) const {
  WaitsFor what{.wait = look.wait};
  switch (look.wait) {
    case SampledWait::kGil:
      what.what = look.what;
      what.name = program_line_of(look.what, look.end);
      break;
    case SampledWait::kOther:
      what.what = look.what;
      break;
    default:
      what.name = look.what_name;
      break;
  }
  return what;
}

uint32_t ThreadLooks::program_line_of(uint32_t tid, int64_t at) const {
  constexpr int64_t kLongest = 200'000'000;  // a look that ends later says nothing of then
  auto look = std::ranges::lower_bound(timeline_.samples, at, {}, &TimelineSample::end);
  for (; look != timeline_.samples.end() && look->end < at + kLongest; ++look) {
    if (look->tid != tid) continue;
    for (uint32_t f = look->frame; f != 0; f = timeline_.frames[f].caller)
      if (timeline_.is_program(timeline_.frames[f].name)) return timeline_.frames[f].name;
    return 0;
  }
  return 0;
}

void ThreadLooks::add(const TimelineSample& look, int64_t begin, int64_t end, ThreadAccount& to) const {
  const int64_t waited = look.waited_ns();
  const bool is_asleep = look.wait != SampledWait::kUnknown;
  if (look.begin >= begin && look.end <= end) {
    add_to(to.ran_ns, look.ran_ns);
    add_to(to.queued_ns, look.queued_ns);
    if (waited > 0) add_to(to.waits[waits_for(look)], waited);
  } else if (is_asleep) {
    add_to(to.waits[waits_for(look)], look.ns());
  } else if (!knows_waits_ || look.ran_ns + look.queued_ns <= 0) {
    return;
  } else {
    const int64_t ran = part_of(look.ns(), look.ran_ns, look.ran_ns + look.queued_ns);
    add_to(to.ran_ns, ran);
    add_to(to.queued_ns, look.ns() - ran);
  }
  to.looks += weight(look);
}

uint32_t line_in_function(const Timeline& timeline, uint32_t frame, std::string_view function) {
  const PlaceParts wanted = split_place(function);
  for (; frame != 0; frame = timeline.frames[frame].caller) {
    const uint32_t name = timeline.frames[frame].name;
    const PlaceParts here = split_place(timeline.text(name));
    if (here.name == wanted.name && here.file == wanted.file) return here.line == 0 ? 0 : name;
  }
  return 0;
}

}  // namespace torchprof::formats
