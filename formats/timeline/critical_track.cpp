#include "formats/timeline/critical_track.h"

#include <algorithm>

#include "formats/analysis/statistics.h"
#include "formats/timeline/build.h"
#include "formats/timeline/critical_path.h"

namespace torchprof::formats {

std::vector<CriticalSlice> critical_track_of(const Process& process) {
  const Timeline timeline = timeline_of(process, statistics_of(process).steps.spans);
  const TimelineIndex index(timeline);
  std::vector<CriticalSlice> slices;
  for (const StepSpan& step : timeline.steps) {
    const StepGraph graph(index, step);
    for (const PathSegment& segment : graph.path()) {
      const int64_t begin = std::max(segment.begin, process.selection.begin);
      const int64_t end = std::min(segment.end, process.selection.end);
      if (end <= begin) continue;
      std::string name(text_of(segment.part.kind));
      if (const std::string_view of = graph.name_of(segment.part); !of.empty()) name.append(": ").append(of);
      slices.push_back({begin, end, std::move(name), std::string(graph.place_of(segment.part))});
    }
  }
  return slices;
}

}  // namespace torchprof::formats
