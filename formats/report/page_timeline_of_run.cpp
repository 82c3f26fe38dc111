// The timeline of a run, from its raw records.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/analysis/program_places.h"
#include "formats/analysis/step_parts.h"
#include "formats/replay/process_label.h"
#include "formats/replay/replay.h"
#include "formats/report/page_timeline.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/roles.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

// Gives what one process did to the timeline.
class TimelineSink final : public Sink {
 public:
  TimelineSink(const Process& process, PageTimeline& timeline, Replay& replay)
      : process_(process), timeline_(timeline), replay_(replay) {
    replay.add(*this);
  }

  void slice(const Slice& s) override {
    const TimelineKind kind = kind_of(s);
    if (kind == TimelineKind::kPython && !replay_.names().is_program(s.name)) return;
    // An object's number stands for its path, that of inputs for their sizes.
    uint32_t detail = 0;
    if (s.kind == SliceKind::kOperator) detail = s.inputs.value << 1;
    if (kind == TimelineKind::kModule) detail = s.object.value << 1 | 1;
    timeline_.add({s.drawn_begin.value, s.drawn_end - s.drawn_begin, s.row << 1, s.name.value, detail, 0, kind});
  }
  void gpu_call(const GpuCall& c) override {
    timeline_.add({c.begin.value, c.end - c.begin, c.row << 1, c.name.value, 0, 0, TimelineKind::kGpuCall});
  }
  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    const auto [stream, is_new] = streams_.try_emplace({a.device, a.stream}, static_cast<uint32_t>(streams_.size()));
    const TimelineKind kind = a.kind != Kind::GpuKernel                          ? TimelineKind::kCopy
                              : replay_.names().text(a.name).starts_with("nccl") ? TimelineKind::kGpuCommunication
                                                                                 : TimelineKind::kKernel;
    uint32_t by = 0;
    if (a.call != nullptr && a.call->op >= 0) by = (*a.call->stack)[a.call->op].name.value;
    timeline_.add({a.begin.value, a.end - a.begin, stream->second << 1 | 1, a.name.value, 0, by, kind});
  }
  void end() override {
    make_rows();
    Names& names = replay_.names();
    const auto name = [&](uint32_t name) { return timeline_.name(names.text({name})); };
    timeline_.settle([this](uint32_t row) { return rows_[row]; }, name,
                     [&](uint32_t detail) { return timeline_.name(detail_text(detail)); }, name);
  }

 private:
  TimelineKind kind_of(const Slice& s) {
    switch (s.kind) {
      case SliceKind::kPython:
        return s.object ? TimelineKind::kModule : TimelineKind::kPython;
      case SliceKind::kCCall:
        return TimelineKind::kCCall;
      case SliceKind::kGc:
      case SliceKind::kBlind:
        return TimelineKind::kPause;
      case SliceKind::kOperator:
        break;
    }
    if (is_communication(replay_.names().text(s.name))) return TimelineKind::kCommunication;
    return is_annotation(s.scope) ? TimelineKind::kAnnotation : TimelineKind::kOperator;
  }

  std::string detail_text(uint32_t detail) const {
    if ((detail & 1) != 0) return std::string(process_.path({detail >> 1}));
    return dims_json(process_.string({detail >> 1}));
  }

  // Threads in their order, each before what does not nest on its row; then streams.
  void make_rows() {
    const std::string process = process_label(process_);
    const std::vector<Row>& threads = replay_.rows();
    std::map<uint32_t, size_t> first;  // by thread
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < threads.size(); ++i) {
      first.try_emplace(threads[i].sort_tid, i);
      order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [&](uint32_t i) { return first[threads[i].sort_tid]; });
    rows_.resize(2 * std::max(threads.size(), streams_.size()));
    for (const uint32_t i : order)
      rows_[i << 1] = timeline_.row(
          process, "thread " + thread_label(threads[i]) + (threads[i].is_overflow ? ", what overlaps" : ""), false);
    for (const auto& [stream, i] : streams_) {
      std::string label = "GPU " + std::to_string(stream.first);
      if (stream.second != kNoGpuNumber) label += ", stream " + std::to_string(stream.second);
      rows_[i << 1 | 1] = timeline_.row(process, label, true);
    }
  }

  const Process& process_;
  PageTimeline& timeline_;
  Replay& replay_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> streams_;  // device and stream
  // Of the timeline, by those of the slices: a thread's times 2, a stream's times 2, plus 1.
  std::vector<uint32_t> rows_;
};

// Of each process those that were recorded in full.
std::vector<std::vector<StepSpan>> steps_in_full(const Report& report) {
  std::vector<std::vector<StepSpan>> steps;
  for (const ReportPart& part : report.parts) {
    steps.push_back(part.statistics.steps.spans);
    if (part.all_steps.empty()) continue;
    std::set<uint64_t> in_full;
    for (const StepTime& step : part.all_steps)
      if (step.in_full) in_full.insert(step.step);
    std::erase_if(steps.back(), [&](const StepSpan& span) { return !in_full.contains(span.number); });
  }
  return steps;
}

}  // namespace

TimelineOfRun::TimelineOfRun(const Trace& trace, const Report& report)
    : processes_(in_shown_order(trace.processes)),
      report_(report),
      timeline_(timeline_views(steps_in_full(report), trace.start.value, trace.end.value)) {
  // Those whose steps are shown are among the first, as there may be no room for all.
  const auto runs = [&](const Process& p, bool has_shown_step) {
    return std::ranges::any_of(timeline_.views(), [&](const TimelineView& view) {
      const bool is_its_step = view.of_steps != 0 && processes_[view.process] == &p;
      return has_shown_step ? is_its_step : p.start.value < view.end && p.end.value > view.begin && !is_its_step;
    });
  };
  for (const bool has_shown_step : {true, false})
    for (const Process* p : processes_) {
      if (shown_.contains(p->place) || !runs(*p, has_shown_step)) continue;
      if (shown_.size() < kTimelineProcesses)
        shown_.insert(p->place);
      else
        timeline_.leave_out_process();
    }
}

std::unique_ptr<Sink> TimelineOfRun::draw(const Process& process, Replay& replay) {
  if (!shown_.contains(process.place)) return nullptr;
  return std::make_unique<TimelineSink>(process, timeline_, replay);
}

std::string TimelineOfRun::json() {
  return timeline_.json(report_.start.value, [this](size_t i) { return process_label(*processes_[i]); });
}

}  // namespace torchprof::formats
