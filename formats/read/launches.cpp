#include "formats/read/launches.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/read/ranges.h"

namespace torchprof::formats {

bool LaunchMatcher::is_call(std::string_view category) {
  return category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime" || category == "Driver" ||
         category == "hip_runtime" || category == "hip_driver";
}

void LaunchMatcher::finish(ReadEvents& events) {
  std::vector<ReadCall>& calls = events.calls;
  const auto is_known = [](const ReadCall& c) { return c.correlation != 0; };
  if (work_.empty() || std::ranges::none_of(calls, is_known)) {
    for (const DeviceWork& w : work_) events.devices.add(w);
    work_ = {};
    return;
  }
  std::vector<std::vector<Ranges::Range>> operators(events.rows.size());
  uint32_t number = 0;
  for (ReadSlice& s : events.slices) {
    if (!s.is_operator) continue;
    s.external = ++number;
    if (s.is_annotation) continue;
    operators[s.row].push_back({s.begin, s.begin + s.duration, s.external});
  }
  std::ranges::sort(calls, {}, [](const ReadCall& c) { return std::tuple(c.row, c.begin); });
  std::unordered_map<uint32_t, uint32_t> launched_by;  // by correlation
  for (auto first = calls.begin(); first != calls.end();) {
    const auto last = std::ranges::find_if(first, calls.end(), [&](const ReadCall& c) { return c.row != first->row; });
    Ranges around(std::move(operators[first->row]));
    for (; first != last; ++first) {
      // Files in whole microseconds have calls that begin or end with their operator.
      const uint32_t op = around.around(first->begin + 1, first->end - 1);
      if (first->correlation != 0) launched_by.try_emplace(first->correlation, op);
    }
  }
  for (DeviceWork& w : work_) {
    const auto it = launched_by.find(w.correlation);
    w.external = it == launched_by.end() ? 0 : it->second;
    events.devices.add(w);
  }
  work_ = {};
}

}  // namespace torchprof::formats
