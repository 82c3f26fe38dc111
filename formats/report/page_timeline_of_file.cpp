// The timeline of a trace file.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/analysis/step_parts.h"
#include "formats/io/text.h"
#include "formats/report/page_timeline.h"

namespace torchprof::formats {
namespace {

TimelineKind kind_of(const TimelineSpan& s, std::string_view name) {
  switch (s.kind) {
    case SpanKind::kPython:
      return TimelineKind::kPython;
    case SpanKind::kModule:
      return TimelineKind::kModule;
    case SpanKind::kCCall:
      return TimelineKind::kCCall;
    case SpanKind::kCall:
      return TimelineKind::kGpuCall;
    case SpanKind::kGc:
      return TimelineKind::kPause;
    case SpanKind::kOperator:
    case SpanKind::kAnnotation:
      break;
  }
  if (is_communication(name)) return TimelineKind::kCommunication;
  return s.kind == SpanKind::kAnnotation ? TimelineKind::kAnnotation : TimelineKind::kOperator;
}

// The innermost operator around a call; 0: none.
uint32_t operator_around(const Timeline& t, const TimelineWork& w) {
  if (w.row == kNoSpan) return 0;
  const std::vector<TimelineSpan>& spans = t.rows[w.row].spans;
  for (uint32_t i = w.call; i != kNoSpan; i = spans[i].parent)
    if (spans[i].kind == SpanKind::kOperator) return spans[i].name;
  return 0;
}

void add_process(const Timeline& t, const std::string& process, PageTimeline& page) {
  std::vector<uint32_t> rows;
  for (uint32_t r = 0; r < t.rows.size(); ++r) {
    for (const TimelineSpan& s : t.rows[r].spans) {
      const TimelineKind kind = kind_of(s, t.text(s.name));
      if (kind == TimelineKind::kPython && !t.is_program(s.name)) continue;
      page.add({s.begin, s.ns(), r, s.name, 0, 0, kind});
    }
    rows.push_back(page.row(process, printable(t.rows[r].thread), false));
  }
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> streams;  // by device and stream: number of the row
  for (const TimelineWork& w : t.work) streams.try_emplace({w.device, w.stream}, 0);
  for (auto& [stream, row] : streams) {
    row = static_cast<uint32_t>(rows.size());
    rows.push_back(
        page.row(process, "GPU " + std::to_string(stream.first) + ", stream " + std::to_string(stream.second), true));
  }
  for (const TimelineWork& w : t.work) {
    const TimelineKind kind = w.kind != WorkKind::kKernel               ? TimelineKind::kCopy
                              : is_communication_kernel(t.text(w.name)) ? TimelineKind::kGpuCommunication
                                                                        : TimelineKind::kKernel;
    page.add({w.begin, w.ns(), streams[{w.device, w.stream}], w.name, 0, operator_around(t, w), kind});
  }
  const auto name = [&](uint32_t id) { return page.name(t.text(id)); };
  page.settle([&rows](uint32_t row) { return rows[row]; }, name, name, name);
}

}  // namespace

std::string timeline_json(const TraceFile& file, const Report& report) {
  std::vector<std::vector<StepSpan>> steps;
  int64_t begin = INT64_MAX, end = INT64_MIN;
  for (size_t i = 0; i < report.parts.size(); ++i) {
    steps.push_back(report.parts[i].statistics.steps.spans);
    const Timeline& t = file.processes[i].timeline;
    if (t.end == t.begin) continue;
    begin = std::min(begin, t.begin);
    end = std::max(end, t.end);
  }
  PageTimeline page(timeline_views(steps, std::min(begin, end), end));
  const auto who = [&](size_t i) {
    const ReportPart& part = report.parts[i];
    return printable((part.command.empty() ? "process" : part.command) + " " + part.pid);
  };
  for (size_t i = 0; i < report.parts.size(); ++i) {
    const bool has_shown_step = std::ranges::any_of(
        page.views(), [i](const TimelineView& view) { return view.of_steps != 0 && view.process == i; });
    if (i < kTimelineProcesses || has_shown_step)
      add_process(file.processes[i].timeline, who(i), page);
    else
      page.leave_out_process();
  }
  return page.json(report.start.value, who);
}

}  // namespace torchprof::formats
