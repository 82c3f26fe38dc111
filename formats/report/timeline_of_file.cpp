// The timeline of a trace file.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/analysis/program_places.h"
#include "formats/analysis/step_parts.h"
#include "formats/io/sum.h"
#include "formats/report/timeline.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

class FileTimeline {
 public:
  // `pids`: interned, of the processes in the order in which they are shown.
  FileTimeline(const ReadEvents& events, const std::vector<uint32_t>& pids, Timeline& timeline)
      : events_(events), timeline_(timeline), places_(events.pids.texts.size(), kNotShown) {
    for (std::vector<uint8_t>& kinds : kinds_) kinds.resize(events.names.texts.size(), kUnseen);
    for (size_t i = 0; i < pids.size(); ++i) {
      const bool has_shown_step = std::ranges::any_of(
          timeline.views(), [i](const TimelineView& view) { return view.of_steps != 0 && view.process == i; });
      if (i < kTimelineProcesses || has_shown_step)
        places_[pids[i]] = i;
      else
        timeline.leave_out_process();
    }
    if (!pids.empty()) add_work(pids.front());
    add_slices();
    make_rows(pids);
    const auto name = [&](uint32_t name) { return timeline.name(text(name - 1)); };
    timeline.settle([this](uint32_t row) { return rows_[row]; }, name,
                    [&](uint32_t module) { return timeline.name(events_.places.at(module - 1).path); },
                    [&](uint32_t external) { return operators_[external] == 0 ? 0 : name(operators_[external]); });
  }

  std::string label_of_process(uint32_t pid) const {
    const auto name = events_.process_names.find(pid);
    return (name == events_.process_names.end() || name->second.empty() ? "process" : name->second) + " " +
           *events_.pids.texts[pid];
  }

 private:
  static constexpr uint8_t kUnseen = 255, kNoSlice = 254;
  static constexpr size_t kNotShown = SIZE_MAX;

  const std::string& text(uint32_t name) const { return *events_.names.texts[name]; }

  // kNoSlice: it is not shown. The kind follows from the name and its category, which for nearly all names is one.
  uint8_t kind_of(const ReadSlice& s) {
    if (s.is_annotation) return static_cast<uint8_t>(TimelineKind::kAnnotation);
    uint8_t& kind = kinds_[s.is_operator][s.name];
    if (kind != kUnseen) return kind;
    const std::string_view name = text(s.name);
    const auto is = [&](TimelineKind k) { return kind = static_cast<uint8_t>(k); };
    if (s.is_operator) return is(is_communication(name) ? TimelineKind::kCommunication : TimelineKind::kOperator);
    if (name.starts_with(kModulePrefix) || name.starts_with(kOptimizerPrefix)) return is(TimelineKind::kModule);
    if (name.starts_with("<built-in ")) return is(TimelineKind::kCCall);
    return is_torchs(name) ? kind = kNoSlice : is(TimelineKind::kPython);
  }

  static bool is_number(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

  std::string label_of_stream(const DeviceWork& w) const {
    std::string label = events_.devices.label_of(w.pid);
    if (label.empty()) label = *events_.pids.texts[w.pid];
    if (is_number(label)) label.insert(0, "GPU ");
    if (w.stream == 0) return label;
    const std::string& tid = events_.rows[w.stream - 1].tid;
    return label + ", " + (is_number(tid) ? "stream " : "") + tid;
  }

  void add_work(uint32_t otherwise) {
    events_.devices.each(device_owners_of(events_), otherwise, [this](uint32_t pid, const DeviceWork& w) {
      if (places_[pid] == kNotShown) return;
      const Stream stream{places_[pid], w.pid, w.stream};
      const auto row = streams_.try_emplace(stream, static_cast<uint32_t>(streams_.size()), &w).first->second.first;
      const TimelineKind kind = !w.is_kernel                       ? TimelineKind::kCopy
                                : text(w.name).starts_with("nccl") ? TimelineKind::kGpuCommunication
                                                                   : TimelineKind::kKernel;
      if (timeline_.add({w.begin, w.duration, row << 1 | 1, w.name + 1, 0, w.external, kind})) operators_[w.external];
    });
  }

  void add_slices() {
    for (const ReadSlice& s : events_.slices) {
      if (s.is_operator && s.external != 0)
        if (const auto launcher = operators_.find(s.external); launcher != operators_.end())
          launcher->second = s.name + 1;
      const uint8_t kind = kind_of(s);
      if (kind == kNoSlice || places_[events_.rows[s.row].pid] == kNotShown) continue;
      const bool has_path = !s.is_operator && events_.places.contains(s.name);
      timeline_.add(
          {s.begin, s.duration, uint32_t{s.row} << 1, s.name + 1, has_path ? s.name + 1 : 0, 0, static_cast<TimelineKind>(kind)});
    }
  }

  void make_rows(const std::vector<uint32_t>& pids) {
    rows_.resize(2 * std::max(events_.rows.size(), streams_.size()));
    std::vector<uint32_t> threads;
    for (uint32_t i = 0; i < events_.rows.size(); ++i)
      if (places_[events_.rows[i].pid] != kNotShown) threads.push_back(i);
    std::ranges::stable_sort(threads, {}, [this](uint32_t i) { return places_[events_.rows[i].pid]; });
    auto thread = threads.begin();
    auto stream = streams_.begin();
    for (size_t place = 0; place < pids.size(); ++place) {
      const std::string process = label_of_process(pids[place]);
      for (; thread != threads.end() && places_[events_.rows[*thread].pid] == place; ++thread)
        rows_[*thread << 1] = timeline_.row(process, "thread " + events_.rows[*thread].tid, false);
      for (; stream != streams_.end() && std::get<0>(stream->first) == place; ++stream) {
        const auto& [row, work] = stream->second;
        rows_[row << 1 | 1] = timeline_.row(process, label_of_stream(*work), true);
      }
    }
  }

  const ReadEvents& events_;
  Timeline& timeline_;
  std::vector<size_t> places_;                            // of processes, by interned pid
  std::vector<uint8_t> kinds_[2];                         // by name, of Python and of operators
  using Stream = std::tuple<size_t, uint32_t, uint32_t>;  // place of the process, the device's process, the stream
  std::map<Stream, std::pair<uint32_t, const DeviceWork*>> streams_;  // number, and what runs there
  std::unordered_map<uint32_t, uint32_t> operators_;  // names plus 1, by the External ids of work that is shown
  std::vector<uint32_t>
      rows_;  // of the timeline, by those of the slices: a thread's times 2, a stream's times 2, plus 1
};

}  // namespace

std::string timeline_json(const ReadEvents& events, const std::vector<uint32_t>& pids, const Report& report,
                          int64_t wall_ns) {
  std::vector<std::vector<StepSpan>> steps;
  for (const ReportPart& part : report.parts) steps.push_back(part.statistics.steps.spans);
  Timeline timeline(timeline_views(steps, report.start.value, sum(report.start.value, wall_ns)));
  const FileTimeline file(events, pids, timeline);
  return timeline.json(report.start.value, [&](size_t i) { return file.label_of_process(pids[i]); });
}

}  // namespace torchprof::formats
