#include "formats/write/perfetto/perfetto.h"

#include <array>
#include <map>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <vector>

#include "formats/io/perfetto_fields.h"
#include "formats/memory/memory.h"
#include "formats/replay/process_label.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"
#include "formats/timeline/critical_track.h"
#include "formats/write/perfetto/arguments.h"
#include "formats/write/perfetto/callstacks.h"
#include "formats/write/perfetto/gpu.h"
#include "formats/write/perfetto/interning.h"
#include "formats/write/perfetto/packets.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;
using protozero::pbf_writer;

struct Ids {  // the last ids given in this file
  uint64_t track = 0;
  uint64_t flow = 0;
  // Perfetto counts the legacy flows of a trace from 0, with 32 bits, whatever their ids are, and has those of flow_ids
  // in the same table (flow_tracker.h: v1_id_counter_).
  uint64_t gpu_flow = uint64_t{1} << 32;
  uint32_t sequence = 0;
};

enum Category : uint8_t {
  kPythonFunction,
  kCpuOp,
  kUserAnnotation,
  kCudaRuntime,
  kCudaDriver,
  kKernel,
  kCopy,
  kSet,
  kSync,
  kEvent,
  kGpuAnnotation,
  kInstantEvent,
  kCriticalPath,
  kCategories
};
constexpr std::array<const char*, kCategories> kCategoryNames = {
    "python_function", "cpu_op",     "user_annotation", "cuda_runtime", "cuda_driver",         "kernel",
    "gpu_memcpy",      "gpu_memset", "cuda_sync",       "cuda_event",   "gpu_user_annotation", "cpu_instant_event",
    "critical_path"};

Category category_of(SliceKind kind, OpScope scope) {
  if (kind != SliceKind::kOperator) return kPythonFunction;
  return scope == OpScope::kUserScope ? kUserAnnotation : kCpuOp;
}

Category category_of(Kind kind) {
  return kind == Kind::GpuKernel ? kKernel
         : kind == Kind::GpuCopy ? kCopy
         : kind == Kind::GpuSet  ? kSet
         : kind == Kind::GpuSync ? kSync
                                 : kEvent;
}

constexpr uint64_t kNoKey = ~uint64_t{0};  // no span_key() has this value

class ProcessWriter final : public Sink {
 public:
  ProcessWriter(const Process& process, uint64_t pid, UnixNs start, Ids& ids, Output& out)
      : process_(process),
        replay_(process),
        arguments_(process, replay_, names_),
        pid_(pid),
        ids_(ids),
        packets_(++ids.sequence, start, ids.track, names_, out) {}

  void run() {
    packets_.write_clock();
    write_process();
    if (process_.gpu) gpu_.emplace(process_, names_, packets_, process_track_, ids_.gpu_flow);
    ids_.flow += replay_.run(*this).flows;
    if (gpu_) gpu_->finish();
    if (process_.selection.has_critical_path) write_critical_path();
  }

  void slice(const Slice& s) override {
    Lane& lane = lane_of(s.row);
    const uint64_t key = span_key(s);
    const uint32_t depth = replay_.rows()[s.row].is_overflow ? 0 : s.depth;
    const bool is_cut = s.drawn_end < s.end;  // so that a range inside of it goes on on this row
    begin_around(lane, {s.around, depth}, key, s.drawn_begin, s.drawn_end, is_cut);
    if (const auto begun = std::ranges::find(lane.begun, key); begun != lane.begun.end())
      lane.begun.erase(begun);
    else
      event(s.drawn_begin, lane.track, begin_of(category_of(s.kind, s.scope), s.name), callstacks_.field(s.native));
    UnixNs end = s.drawn_end;
    // The range before which it is cut may be begun already, because of what began with it. Of equal times the order
    // in the file counts.
    if (is_cut && end > s.drawn_begin && has_begun_inside(lane, {s.around, depth})) --end.value;
    event(end, lane.track, end_, arguments_.of(s));
    if (gpu_ && s.kind == SliceKind::kOperator && is_annotation(s.scope)) annotation_ended(s);
  }

  void gpu_call(const GpuCall& c) override {
    Lane& lane = lane_of(c.row);
    begin_around(lane, c.stack->spans(), kNoKey, c.begin, c.end, false);
    const Category category = c.api->api == GpuApiKind::kDriver ? kCudaDriver : kCudaRuntime;
    event(c.begin, lane.track, begin_of(category, c.name), gpu_->begins(c).append(callstacks_.field(c.native)));
    event(c.end, lane.track, end_, gpu_->arguments(c));
  }

  void gpu_activity(const GpuActivity& a) override {
    std::string of_launch = a.call ? arguments_.of_launch(a.call->module, a.call->is_backward) : std::string{};
    gpu_->activity(a,
                   a.kind == Kind::GpuEvent ? instant_of(kEvent, replay_.names().text(a.name))
                                            : begin_of(category_of(a.kind), a.name),
                   of_launch);
  }

  void mark(const Mark& m) override {
    event(m.time, lane_of(m.row).track, instant_of(kInstantEvent, replay_.names().text(m.name)),
          m.is_window ? std::string{} : arguments_.of_nvtx(m.attributes));
  }

  void flow(const Flow& f) override {
    flow_end(f, 's', f.from_row, f.from);
    flow_end(f, 'f', f.to_row, f.to);
  }

  void step(const StepMark& m) override {
    if (steps_track_.empty()) steps_track_ = track_field(packets_.add_track(process_track_, "Steps"));
    std::string begin = begin_fragment(kUserAnnotation, "ProfilerStep#" + std::to_string(m.number));
    event(m.begin, steps_track_, begin);
    event(m.end, steps_track_, end_,
          m.ended_by ? names_.argument("Step ends with", replay_.names().text(m.ended_by)) : std::string{});
  }

  void memory(const MemoryEvent& m) override {
    const std::string_view stack = callstacks_.field(m.native);
    if (m.is_out_of_memory || !stack.empty())
      event(m.time, lane_of(m.row).track, instant_of(kInstantEvent, m.is_out_of_memory ? "[OutOfMemory]" : "[memory]"),
            names_.argument("Bytes", m.bytes).append(stack));
    if (m.is_out_of_memory || m.is_mapped) return;
    Device& device = devices_[{m.device_type, m.device_index}];
    count(device.allocated, m.time, m.allocated, "Memory allocated, ", m);
    if (device.reserved.last != m.reserved) count(device.reserved, m.time, m.reserved, "Memory reserved, ", m);
  }
  void python_memory(const MemoryEvent& m) override { memory(m); }

 private:
  struct Lane {                   // of a row
    std::string track;            // encoded field
    std::vector<uint64_t> begun;  // keys of open slices whose begin is written, outermost first
  };
  struct Counter {
    std::string track;
    uint64_t last = 0;
  };
  struct Device {
    Counter allocated, reserved;
  };

  void event(UnixNs time, std::string_view track, std::string_view fields, std::string_view more = {}) {
    packets_.event(time, track, fields, more);
  }

  // ---- tracks ----------------------------------------------------------------------------------------------

  void write_process() {
    process_track_ = packets_.next_track();
    packets_.packet(packet::kNeedsIncrementalState, [this](pbf_writer& p) {
      pbf_writer track(p, packet::kTrackDescriptor);
      track.add_uint64(track::kUuid, process_track_);
      pbf_writer process(track, track::kProcess);
      process.add_int32(process::kPid, static_cast<int32_t>(pid_));
      for (const std::string_view argument : process_.command)
        process.add_bytes(process::kCommandLine, text_field(argument));
      std::string name(program_name(process_));
      if (!process_.role.empty()) {
        process.add_bytes(process::kLabels, process_.role);
        name.append(", ").append(process_.role);
      }
      if (!process_.told_host.empty()) {
        process.add_bytes(process::kLabels, text_field(process_.told_host));
        name.append(", on ").append(process_.told_host);
      }
      if (const std::string cut = cut_label(process_); !cut.empty()) {
        process.add_bytes(process::kLabels, cut.substr(2));
        name += cut;
      }
      process.add_bytes(process::kName, text_field(name));
      process.add_int64(process::kStart, process_.start.value);
    });
  }

  void write_critical_path() {
    const std::string track = track_field(packets_.add_track(process_track_, "Critical path"));
    for (const CriticalSlice& s : critical_track_of(process_)) {
      event({s.begin}, track, begin_fragment(kCriticalPath, s.name));
      event({s.end}, track, end_, names_.argument("Python line", s.place));
    }
  }

  Lane& lane_of(uint32_t row) {
    if (row >= lanes_.size()) lanes_.resize(row + 1);
    Lane& lane = lanes_[row];
    if (lane.track.empty()) [[unlikely]]
      lane.track = track_field(track_of(row));
    return lane;
  }

  uint64_t track_of(uint32_t index) {
    const Row row = replay_.rows()[index];
    const auto [it, is_new] = tracks_.try_emplace(row.tid, 0);
    if (!is_new) return it->second;
    if (row.is_overflow) {
      uint64_t parent = 0;
      for (uint32_t i = 0; i < replay_.rows().size() && parent == 0; ++i) {
        const Row& other = replay_.rows()[i];
        if (!other.is_overflow && other.tid == row.sort_tid) parent = track_of(i);
      }
      return tracks_[row.tid] = packets_.add_track(parent != 0 ? parent : process_track_, kOverlapping);
    }
    const uint64_t id = tracks_[row.tid] = packets_.next_track();
    packets_.packet(packet::kNeedsIncrementalState, [&](pbf_writer& p) {
      pbf_writer track(p, packet::kTrackDescriptor);
      track.add_uint64(track::kUuid, id);
      track.add_uint64(track::kParent, process_track_);
      pbf_writer thread(track, track::kThread);
      thread.add_int32(thread::kPid, static_cast<int32_t>(pid_));
      thread.add_int64(thread::kTid, row.tid);
      thread.add_bytes(thread::kName, text_field(thread_label(row)));
    });
    return id;
  }

  void count(Counter& counter, UnixNs time, uint64_t value, std::string_view what, const MemoryEvent& of) {
    if (counter.track.empty()) {
      const std::string name = std::string(what).append(device_text(of.device_type, of.device_index));
      counter.track = Packets::counter_fields(packets_.add_track(process_track_, name, CounterUnit::kBytes));
    }
    counter.last = value;
    packets_.count(counter.track, time, static_cast<int64_t>(value));
  }

  // ---- slices ----------------------------------------------------------------------------------------------

  std::string begin_fragment(Category category, std::string_view name) {
    return fragment(event::kSliceBegin, category, name);
  }
  std::string instant_of(Category category, std::string_view name) { return fragment(event::kInstant, category, name); }
  std::string fragment(uint32_t type, Category category, std::string_view name) {
    std::string fields = type_field(type);
    pbf_writer writer(fields);
    writer.add_uint64(event::kCategory, names_.category(kCategoryNames[category]));
    writer.add_uint64(event::kName, names_.event_name(name));
    return fields;
  }

  const std::string& begin_of(Category category, NameId name) {  // made once for each name and category
    auto& begins = begins_[category];
    if (name.value >= begins.size()) begins.resize(std::max<size_t>(replay_.names().size() + 1, begins.size() * 2));
    std::string& fields = begins[name.value];
    if (fields.empty()) [[unlikely]]
      fields = begin_fragment(category, replay_.names().text(name));
    return fields;
  }

  void begin_early(Lane& lane, const Span& span) {
    const uint64_t key = span_key(span);
    for (const uint64_t begun : lane.begun)
      if (begun == key) return;
    lane.begun.push_back(key);
    event({span.begin}, lane.track, begin_of(category_of(span.kind, span.scope), span.name),
          callstacks_.field(span.native));
  }

  // Before a slice: first writes the begins of slices around it that begin at the same time. An annotation whose begin
  // is written already, but which has moved to another row since, is ended here, unless some are to be kept.
  void begin_around(Lane& lane, std::span<const Span> around, uint64_t key, UnixNs begin, UnixNs end, bool keeps) {
    const auto is_around = [around](uint64_t begun) {
      return std::ranges::any_of(around,
                                 [begun](const Span& span) { return !span.is_apart && span_key(span) == begun; });
    };
    for (; !keeps && !lane.begun.empty() && lane.begun.back() != key && !is_around(lane.begun.back());
         lane.begun.pop_back())
      event(end, lane.track, end_);
    size_t tied = around.size();
    while (tied > 0 && around[tied - 1].begin == begin.value) --tied;
    for (; tied < around.size(); ++tied)
      if (!around[tied].is_apart) begin_early(lane, around[tied]);
  }

  static bool has_begun_inside(const Lane& lane, std::span<const Span> around) {
    return std::ranges::any_of(lane.begun, [around](uint64_t begun) {
      return std::ranges::none_of(around, [begun](const Span& span) { return span_key(span) == begun; });
    });
  }

  void annotation_ended(const Slice& s) {
    uint32_t depth = 0;
    for (const Span& span : std::span(s.around, s.depth)) depth += span.is_op() && is_annotation(span.scope) ? 1 : 0;
    gpu_->annotation_ended(s.external_id, depth, begin_of(kGpuAnnotation, s.name));
  }

  void flow_end(const Flow& f, char phase, uint32_t row, UnixNs time) {
    std::string fields;
    {
      pbf_writer writer(fields);
      writer.add_uint64(event::kCategory, names_.category("fwdbwd"));
      writer.add_uint64(event::kName, names_.event_name("fwdbwd"));
      pbf_writer legacy(writer, event::kLegacy);
      legacy.add_int32(legacy::kPhase, phase);
      legacy.add_uint64(legacy::kId, ids_.flow + f.id);
      if (phase == 'f') legacy.add_bool(legacy::kBindToEnclosing, true);
    }
    event(time, lane_of(row).track, fields);
  }

  const Process& process_;
  Replay replay_;
  Interning names_;
  SliceArguments arguments_;
  Callstacks callstacks_{process_, names_};
  const uint64_t pid_;
  Ids& ids_;
  Packets packets_;
  std::optional<GpuTracks> gpu_;  // none: no GPU records
  uint64_t process_track_ = 0;
  std::vector<Lane> lanes_;                              // by row
  std::map<uint32_t, uint64_t> tracks_;                  // by tid
  std::map<std::pair<int8_t, int8_t>, Device> devices_;  // by type and index
  std::string steps_track_;
  const std::string end_ = type_field(event::kSliceEnd);
  std::vector<std::string> begins_[kCategories];  // by name
};

}  // namespace

void write_perfetto(const Trace& trace, Processes processes, Output& out) {
  Ids ids;
  const std::vector<uint64_t> pids = distinct_pids(processes);
  for (size_t i = 0; i < processes.size(); ++i) ProcessWriter(processes[i], pids[i], trace.start, ids, out).run();
}

}  // namespace torchprof::formats
