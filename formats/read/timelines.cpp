#include "formats/read/timelines.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "formats/read/kineto_inputs.h"
#include "formats/timeline/parts.h"
#include "formats/timeline/units.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

WaitKind wait_kind(std::string_view text) {
  if (text == "Event Sync") return WaitKind::kEvent;
  if (text == "Stream Wait Event") return WaitKind::kStreamEvent;
  if (text == "Stream Sync") return WaitKind::kStream;
  return text == "Context Sync" ? WaitKind::kContext : WaitKind::kOther;
}

class Maker {
 public:
  Maker(const ReadEvents& read, const std::vector<uint32_t>& order, const std::string& step, TraceFile& file)
      : read_(read), step_(step), file_(file), names_(order.size()), rows_(read.rows.size(), kNoSpan) {
    for (size_t i = 0; i < order.size(); ++i) process_of_.emplace(order[i], i);
  }

  void run() {
    add_slices();
    for (const ReadCall& c : read_.calls)
      add(c.row,
          {.begin = c.begin, .end = c.end, .name = c.name, .correlation = c.correlation, .kind = SpanKind::kCall});
    for (const ReadWork& w : read_.work) add_work(w);
    for (const ReadWait& w : read_.waits) add_wait(w);
    for (const ReadMemory& m : read_.memory) add_block(m);
    for (size_t i = 0; i < file_.processes.size(); ++i) finish(i);
  }

 private:
  void add_slices() {
    for (const ReadSlice& s : read_.slices) {
      SpanKind kind = s.is_annotation ? SpanKind::kAnnotation : SpanKind::kOperator;
      if (!s.is_operator) kind = python_kind(*read_.names.texts[s.name]);
      const ReadCut cut = read_.cut_of(s);
      add(s.row,
          {.begin = s.begin + cut.at_begin,
           .end = s.begin + s.duration - cut.at_end,
           .name = s.name,
           .inputs = inputs_of(s),
           .sequence = s.sequence,
           .kind = kind,
           .is_backward = s.is_backward != 0,
           .is_async = s.is_async != 0},
          // In ours they are on rows of their own where they do not nest.
          (s.is_async != 0 || s.is_apart != 0) && !read_.is_ours);
    }
  }

  uint32_t inputs_of(const ReadSlice& s) {
    if (s.inputs == 0) return 0;
    const size_t process = process_of_.find(read_.rows[s.row].pid)->second;
    const auto [known, is_new] = inputs_.try_emplace({process, s.inputs}, 0);
    if (is_new) {
      std::vector<Input> inputs = inputs_of_kineto(*read_.inputs.texts[s.inputs - 1]);
      if (!inputs.empty()) known->second = file_.processes[process].timeline.add_inputs(std::move(inputs));
    }
    return known->second;
  }

  static SpanKind python_kind(std::string_view name) {
    const NameRole role = role_of_name(name);
    if (role == NameRole::kModule || role == NameRole::kOptimizer) return SpanKind::kModule;
    if (name == kPythonGc) return SpanKind::kGc;
    return name.starts_with("<built-in ") ? SpanKind::kCCall : SpanKind::kPython;
  }

  void add(uint32_t file_row, TimelineSpan span, bool overlaps = false) {
    const auto process = process_of_.find(read_.rows[file_row].pid);
    Timeline& timeline = file_.processes[process->second].timeline;
    uint32_t& row = overlaps ? overlapping_.try_emplace(file_row, kNoSpan).first->second : rows_[file_row];
    if (row == kNoSpan) {
      row = static_cast<uint32_t>(timeline.rows.size());
      timeline.rows.push_back({read_.thread(file_row), overlaps || read_.is_overflow(file_row)});
    }
    span.name = name(process->second, span.name);
    timeline.rows[row].spans.push_back(span);
  }

  void add_work(const ReadWork& w) {
    const auto process = process_of_.find(w.process);
    file_.processes[process->second].timeline.work.push_back(
        {.begin = w.begin,
         .end = w.begin + w.duration,
         .bytes = w.bytes,
         .name = name(process->second, w.name),
         .device = w.device,
         .stream = w.stream,
         .correlation = w.correlation,
         .blocks_per_sm = w.blocks_per_sm,
         .occupancy = w.occupancy,
         .kind = w.is_kernel ? WorkKind::kKernel : (w.is_set ? WorkKind::kSet : WorkKind::kCopy)});
    device_process_.try_emplace(w.pid, process->second);
  }

  void add_wait(const ReadWait& w) {
    const auto process = device_process_.find(w.pid);
    if (process == device_process_.end()) return;
    file_.processes[process->second].timeline.waits.push_back({.begin = w.begin,
                                                               .end = w.end,
                                                               .device = w.device,
                                                               .stream = w.stream,
                                                               .correlation = w.correlation,
                                                               .recorded = w.recorded,
                                                               .of_stream = w.of_stream,
                                                               .kind = wait_kind(*read_.names.texts[w.kind])});
  }

  void add_block(const ReadMemory& m) {
    const MemoryChange& c = m.change;
    const auto process = process_of_.find(read_.rows[m.row].pid);
    if (process == process_of_.end() || c.is_out_of_memory || c.is_mapped || c.device_type != 0) return;
    Timeline& timeline = file_.processes[process->second].timeline;
    if (c.bytes <= -kMappedAnew && rows_[m.row] != kNoSpan)
      timeline.large_frees.push_back({c.time.value, -std::max(c.bytes, -INT64_MAX), rows_[m.row]});
    if (c.bytes < kMappedAnew) return;
    const uint32_t place = c.owner.place == 0 ? 0 : name(process->second, c.owner.place - 1);
    timeline.large_blocks.push_back({c.time.value, c.bytes, place});
  }

  uint32_t name(size_t process, uint32_t file_name) {
    std::vector<uint32_t>& known = names_[process];
    if (file_name >= known.size()) known.resize(read_.names.texts.size());
    if (known[file_name] == 0) known[file_name] = file_.processes[process].timeline.name(*read_.names.texts[file_name]);
    return known[file_name];
  }

  void finish(size_t process) {
    Timeline& timeline = file_.processes[process].timeline;
    Statistics& statistics = file_.processes[process].statistics;
    timeline.begin = INT64_MAX;
    timeline.end = INT64_MIN;
    const auto cover = [&timeline](int64_t begin, int64_t end) {
      timeline.begin = std::min(timeline.begin, begin);
      timeline.end = std::max(timeline.end, end);
    };
    for (const TimelineRow& row : timeline.rows)
      for (const TimelineSpan& s : row.spans) cover(s.begin, s.end);
    for (const TimelineWork& w : timeline.work) cover(w.begin, w.end);
    if (timeline.begin > timeline.end) timeline.begin = timeline.end = 0;
    for (const GpuDeviceUse& device : statistics.gpu.devices) timeline.device_names[device.device] = device.name;
    timeline.steps = chosen_steps(statistics.steps.spans, 0);
    timeline.finish();
    if (!step_.empty() || (statistics.steps.count == 0 && !is_loader(file_.processes[process].role))) {
      timeline.steps.clear();
      const RecurringUnit unit = find_unit(timeline, {.chosen = step_, .may_end_whole = true});
      use_unit(timeline, unit);
      if (!unit.name.empty()) statistics.steps = steps_of(unit);
    }
    statistics.step_parts = step_parts_of(timeline, statistics.steps.spans);
    statistics.threads = threads_of(timeline);
    statistics.comms = comms_of(process);
  }

  // Of collectives that launched kernels, the time of these.
  CommsCalls comms_of(size_t process) {
    const Timeline& timeline = file_.processes[process].timeline;
    std::map<std::pair<uint32_t, int64_t>, std::pair<int64_t, int64_t>> kernels;  // by row and begin of the collective
    for (const TimelineWork& w : timeline.work) {
      if (w.row == kNoSpan) continue;
      const auto& spans = timeline.rows[w.row].spans;
      for (uint32_t i = spans[w.call].parent; i != kNoSpan; i = spans[i].parent) {
        if (timeline.text(spans[i].name) != "record_param_comms") continue;
        auto& [begin, end] = kernels.try_emplace({w.row, spans[i].begin}, w.begin, w.end).first->second;
        begin = std::min(begin, w.begin);
        end = std::max(end, w.end);
        break;
      }
    }
    CommsCalls calls;
    const auto text = [this](uint32_t name) { return *read_.names.texts[name]; };
    for (const ReadCollective& c : read_.collectives) {
      const auto owner = process_of_.find(read_.rows[c.row].pid);
      if (owner == process_of_.end() || owner->second != process) continue;
      CommsCall call{c.begin, c.end, c.bytes};
      if (const auto of = kernels.find({rows_[c.row], c.begin}); of != kernels.end())
        std::tie(call.begin, call.end) = of->second;
      std::string ranks = text(c.ranks);
      std::erase_if(ranks, [](char each) { return each == '[' || each == ']'; });
      const std::string group = text(c.group), description = text(c.description);
      calls[{text(c.name), description.empty() ? group : description, group + ":" + ranks, ranks}].push_back(call);
    }
    for (const TimelineRow& row : timeline.rows)
      for (const TimelineSpan& s : row.spans) {
        const bool may_be = s.kind == SpanKind::kOperator || s.kind == SpanKind::kAnnotation;
        if (may_be && is_backend_range(timeline.text(s.name)))
          calls[{std::string(timeline.text(s.name))}].push_back({s.begin, s.end, 0});
      }
    for (auto& [kind, list] : calls.kinds) std::ranges::stable_sort(list, {}, &CommsCall::begin);
    return calls;
  }

  const ReadEvents& read_;
  const std::string& step_;
  TraceFile& file_;
  std::unordered_map<uint32_t, size_t> process_of_;         // by interned pid: index of the file's process
  std::unordered_map<uint32_t, size_t> device_process_;     // by the pid of a device's row
  std::vector<std::vector<uint32_t>> names_;                // by process and the file's name: the timeline's name
  std::vector<uint32_t> rows_;                              // by the file's row: the timeline's
  std::map<std::pair<size_t, uint32_t>, uint32_t> inputs_;  // by process and the file's inputs: the timeline's
  std::unordered_map<uint32_t, uint32_t> overlapping_;      // by the file's row, for asynchronous ranges of other tools
};

}  // namespace

void add_timelines(const ReadEvents& read, const std::vector<uint32_t>& order, const std::string& step,
                   TraceFile& file) {
  Maker(read, order, step, file).run();
}

}  // namespace torchprof::formats
