#include "formats/perfetto.h"

#include <array>
#include <map>
#include <protozero/buffer_fixed.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "formats/memory.h"
#include "formats/perfetto_arguments.h"
#include "formats/perfetto_fields.h"
#include "formats/perfetto_interning.h"
#include "formats/process_label.h"
#include "formats/replay.h"
#include "formats/thread_stack.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;
using protozero::pbf_writer;
using FixedWriter = protozero::basic_pbf_writer<protozero::fixed_size_buffer_adaptor>;

constexpr size_t kMaxPacket = 128;  // of an event without its fragments

struct Ids {  // how many were given so far in this file
  uint64_t track = 0;
  uint64_t flow = 0;
  uint32_t sequence = 0;
};

enum Category : uint8_t { kPythonFunction, kCpuOp, kUserAnnotation, kCategories };
constexpr std::array<const char*, kCategories> kCategoryNames = {"python_function", "cpu_op", "user_annotation"};

Category category_of(SliceKind kind, OpScope scope) {
  if (kind != SliceKind::kOperator) return kPythonFunction;
  return scope == OpScope::kUserScope ? kUserAnnotation : kCpuOp;
}

class ProcessWriter final : public Sink {
 public:
  ProcessWriter(const Process& process, uint64_t pid, UnixNs start, Ids& ids, Output& out)
      : process_(process),
        replay_(process),
        arguments_(process, replay_, names_),
        pid_(pid),
        start_(start),
        ids_(ids),
        sequence_(++ids.sequence),
        out_(out) {}

  void run() {
    write_clock();
    write_process();
    ids_.flow += replay_.run(*this).flows;
  }

  void slice(const Slice& s) override {
    Lane& lane = lane_of(s.row);
    const uint64_t key = span_key(s);
    uint32_t tied = s.depth;  // slices around it that begin with it
    while (tied > 0 && s.around[tied - 1].begin == s.begin.value) --tied;
    end_moved(lane, s, key);
    for (uint32_t i = tied; i < s.depth; ++i) begin_early(lane, s.around[i]);
    if (!lane.begun.empty() && lane.begun.back() == key)
      lane.begun.pop_back();
    else
      event(s.begin, lane.track, begin_of(category_of(s.kind, s.scope), s.name));
    event(s.end, lane.track, end_, arguments_.of(s));
  }

  void flow(const Flow& f) override {
    flow_end(f, 's', f.from_row, f.from);
    flow_end(f, 'f', f.to_row, f.to);
  }

  void step(const StepMark& m) override {
    if (steps_track_.empty()) steps_track_ = track_field(add_track("Steps"));
    std::string begin = begin_fragment(kUserAnnotation, "ProfilerStep#" + std::to_string(m.number));
    event(m.begin, steps_track_, begin);
    event(m.end, steps_track_, end_,
          m.ended_by ? names_.argument("Step ends with", replay_.names().text(m.ended_by)) : std::string{});
  }

  void memory(const MemoryEvent& m) override {
    if (m.is_out_of_memory) {
      std::string fields = type_field(event::kInstant);
      pbf_writer(fields).add_uint64(event::kName, names_.event_name("[OutOfMemory]"));
      return event(m.time, lane_of(m.row).track, fields, names_.argument("Bytes", m.bytes));
    }
    if (m.is_mapped) return;
    Device& device = devices_[{m.device_type, m.device_index}];
    const std::string name = device.allocated.track.empty() ? device_text(m.device_type, m.device_index) : "";
    count(device.allocated, m.time, m.allocated, "Memory allocated, ", name);
    if (device.reserved.last != m.reserved) count(device.reserved, m.time, m.reserved, "Memory reserved, ", name);
  }

 private:
  struct Lane {                   // a row
    std::string track;            // encoded
    std::vector<uint64_t> begun;  // keys of open slices whose begin is written, outermost first
  };
  struct Counter {
    std::string track;
    uint64_t last = 0;
  };
  struct Device {
    Counter allocated, reserved;
  };

  // ---- packets ---------------------------------------------------------------------------------------------

  // `fill` adds what the packet holds beside its sequence.
  template <class Fill>
  void packet(uint32_t flags, Fill fill) {
    std::string bytes;
    {
      pbf_writer trace(bytes);
      pbf_writer packet(trace, trace::kPacket);
      packet.add_uint32(packet::kSequenceId, sequence_);
      packet.add_uint32(packet::kSequenceFlags, flags);
      fill(packet);
    }
    out_.write(bytes);
  }

  // An event made of encoded parts.
  void event(UnixNs time, std::string_view track, std::string_view fields, std::string_view more = {}) {
    if (names_.has_pending()) [[unlikely]]
      packet(packet::kNeedsIncrementalState,
             [this](pbf_writer& p) { p.add_message(packet::kInternedData, names_.take_pending()); });
    const auto ns = static_cast<uint64_t>(std::max<int64_t>(0, time - start_));
    const size_t room = kMaxPacket + track.size() + fields.size() + more.size();
    if (room > Output::kMaxReserve) return event(time, track, fields);
    protozero::fixed_size_buffer_adaptor buffer(out_.reserve(room), room);
    {
      FixedWriter trace(buffer);
      FixedWriter packet(trace, trace::kPacket);
      packet.add_uint64(packet::kTimestamp, ns);
      packet.add_uint32(packet::kSequenceId, sequence_);
      packet.add_uint32(packet::kSequenceFlags, packet::kNeedsIncrementalState);
      packet.add_bytes_vectored(packet::kTrackEvent, fields, track, more);
    }
    out_.advance(buffer.data() + buffer.size());
  }

  static std::string track_field(uint64_t track) {
    std::string field;
    pbf_writer(field).add_uint64(event::kTrack, track);
    return field;
  }
  static std::string type_field(uint32_t type) {
    std::string field;
    pbf_writer(field).add_uint32(event::kType, type);
    return field;
  }

  void write_clock() {
    packet(packet::kIncrementalStateCleared, [this](pbf_writer& p) {
      {
        pbf_writer snapshot(p, packet::kClockSnapshot);
        const auto clock = [&snapshot](uint32_t id, int64_t time) {
          pbf_writer c(snapshot, clock_snapshot::kClocks);
          c.add_uint32(clock_snapshot::kClockId, id);
          c.add_uint64(clock_snapshot::kTimestamp, static_cast<uint64_t>(time));
        };
        clock(clock_snapshot::kSequence, 0);
        clock(clock_snapshot::kRealtime, start_.value);
        snapshot.add_uint32(clock_snapshot::kPrimaryClock, clock_snapshot::kRealtime);
      }
      pbf_writer defaults(p, packet::kDefaults);
      defaults.add_uint32(defaults::kTimestampClock, clock_snapshot::kSequence);
    });
  }

  // ---- tracks ----------------------------------------------------------------------------------------------

  void write_process() {
    process_track_ = ++ids_.track;
    packet(packet::kNeedsIncrementalState, [this](pbf_writer& p) {
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
      process.add_bytes(process::kName, text_field(name));
      process.add_int64(process::kStart, process_.start.value);
    });
  }

  // A track of the process, or below another.
  uint64_t add_track(std::string_view name, bool is_counter = false, uint64_t parent = 0) {
    const uint64_t id = ++ids_.track;
    packet(packet::kNeedsIncrementalState, [&](pbf_writer& p) {
      pbf_writer track(p, packet::kTrackDescriptor);
      track.add_uint64(track::kUuid, id);
      track.add_uint64(track::kParent, parent != 0 ? parent : process_track_);
      track.add_bytes(track::kName, std::string(name));
      if (!is_counter) return;
      pbf_writer counter(track, track::kCounter);
      counter.add_uint32(counter::kUnit, counter::kBytes);
    });
    return id;
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
      return tracks_[row.tid] = add_track("what crosses other annotations", false, parent);
    }
    const uint64_t id = tracks_[row.tid] = ++ids_.track;
    packet(packet::kNeedsIncrementalState, [&](pbf_writer& p) {
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

  void count(Counter& counter, UnixNs time, uint64_t value, std::string_view what, const std::string& device) {
    if (counter.track.empty())
      counter.track = type_field(event::kCounter) +
                      track_field(add_track(std::string(what) + (device.empty() ? "device" : device), true));
    counter.last = value;
    std::string field;
    pbf_writer(field).add_int64(event::kCounterValue, static_cast<int64_t>(value));
    event(time, counter.track, field);
  }

  // ---- slices ----------------------------------------------------------------------------------------------

  std::string begin_fragment(Category category, std::string_view name) {
    std::string fields = type_field(event::kSliceBegin);
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
    event({span.begin}, lane.track, begin_of(category_of(span.kind, span.scope), span.name));
  }

  // An annotation whose begin is written and which the end of a function below it moves: it ends here and begins anew.
  void end_moved(Lane& lane, const Slice& s, uint64_t key) {
    while (!lane.begun.empty() && lane.begun.back() != key) {
      for (uint32_t i = s.depth; i-- > 0;)
        if (span_key(s.around[i]) == lane.begun.back()) return;
      lane.begun.pop_back();
      event(s.end, lane.track, end_);
    }
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
  const uint64_t pid_;
  const UnixNs start_;
  Ids& ids_;
  const uint32_t sequence_;
  Output& out_;
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
