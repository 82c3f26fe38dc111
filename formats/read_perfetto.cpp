#include "formats/read_perfetto.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <unordered_map>

#include "formats/names.h"
#include "formats/perfetto_fields.h"
#include "formats/read_ranges.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;
using protozero::pbf_reader;

enum class Category : uint8_t { kOther, kPython, kOperator, kAnnotation, kCall, kKernel, kCopyOrSet };

Category category_of(std::string_view name) {
  if (name == "python_function") return Category::kPython;
  if (name == "cpu_op") return Category::kOperator;
  if (name == "user_annotation") return Category::kAnnotation;
  if (name == "cuda_runtime" || name == "cuda_driver") return Category::kCall;
  if (name == "kernel") return Category::kKernel;
  return name == "gpu_memcpy" || name == "gpu_memset" ? Category::kCopyOrSet : Category::kOther;
}

struct PacketEvent {
  int64_t time;        // ns
  uint64_t flow;       // 0: none
  uint32_t name;       // interned
  uint32_t arguments;  // index into arguments and 1; 0: none that matters
  uint8_t type;        // event::kSliceBegin or kSliceEnd
  Category category;
};
static_assert(sizeof(PacketEvent) == 32);

struct Arguments {
  uint64_t flops = 0;
  double occupancy = 0;
  std::string module, path, root, ended_by;
  bool is_backward = false;
  bool matter() const {
    return flops != 0 || occupancy != 0 || is_backward || !module.empty() || !root.empty() || !ended_by.empty();
  }
};

struct PacketTrack {
  uint64_t parent = 0;
  std::string name, pid, tid;  // pid: of a process's or thread's own track
  std::vector<PacketEvent> events;
};

class PerfettoReader {
 public:
  explicit PerfettoReader(ByteStream& stream) : stream_(stream) {}

  ReadEvents read() {
    events_.names("unknown");  // what an event without a name has
    read_packets();
    for (auto& [id, track] : tracks_)
      if (!device_of(track)) read_thread(id, track);
    for (auto& [id, track] : tracks_)
      if (const PacketTrack* device = device_of(track)) read_device(track, *device);
    if (events_.slices.empty() && events_.devices.empty() && !has_clock_)
      stream_.fail("it has no slices as torchprof writes them");
    events_.is_ours = true;
    return std::move(events_);
  }

 private:
  static constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // of a packet
  static constexpr int kDeepest = 8;                         // tracks below tracks

  // What one sequence has defined.
  struct Sequence {
    std::unordered_map<uint64_t, Category> categories;
    std::unordered_map<uint64_t, uint32_t> names;  // interned
    std::unordered_map<uint64_t, std::string> argument_names, strings;
    int64_t start = 0;  // of its clock, Unix
  };

  // ---- packets ---------------------------------------------------------------------------------------------

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const int byte = stream_.get();
      if (byte < 0) return std::nullopt;
      ++at_;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  void read_packets() {
    while (const auto tag = varint()) {
      const auto size = *tag == (trace::kPacket << 3 | 2) ? varint() : std::nullopt;
      if (!size || *size > kMostBytes) stream_.fail("it is damaged at byte " + std::to_string(at_));
      const std::string bytes = stream_.take(static_cast<size_t>(*size));
      if (bytes.size() != *size) stream_.fail("it is cut off after " + std::to_string(at_ + bytes.size()) + " bytes");
      try {
        read_packet(pbf_reader(bytes));
      } catch (const protozero::exception&) {
        stream_.fail("the packet at byte " + std::to_string(at_) + " is damaged");
      }
      at_ += *size;
    }
  }

  void read_packet(pbf_reader packet) {
    uint64_t time = 0;
    uint32_t flags = 0, sequence = 0;
    protozero::data_view clock{}, interned{}, track{}, event{};
    while (packet.next()) switch (packet.tag_and_type()) {
        case tag_and_type(packet::kTimestamp, protozero::pbf_wire_type::varint):
          time = packet.get_uint64();
          break;
        case tag_and_type(packet::kSequenceId, protozero::pbf_wire_type::varint):
          sequence = packet.get_uint32();
          break;
        case tag_and_type(packet::kSequenceFlags, protozero::pbf_wire_type::varint):
          flags = packet.get_uint32();
          break;
        case tag_and_type(packet::kClockSnapshot, protozero::pbf_wire_type::length_delimited):
          clock = packet.get_view();
          break;
        case tag_and_type(packet::kInternedData, protozero::pbf_wire_type::length_delimited):
          interned = packet.get_view();
          break;
        case tag_and_type(packet::kTrackDescriptor, protozero::pbf_wire_type::length_delimited):
          track = packet.get_view();
          break;
        case tag_and_type(packet::kTrackEvent, protozero::pbf_wire_type::length_delimited):
          event = packet.get_view();
          break;
        default:
          packet.skip();
      }
    Sequence& of = sequences_[sequence];
    if ((flags & packet::kIncrementalStateCleared) != 0) of = {};
    if (clock.data() != nullptr) read_clock(of, pbf_reader(clock));
    if (interned.data() != nullptr) read_interned(of, pbf_reader(interned));
    if (track.data() != nullptr) read_track(pbf_reader(track));
    if (event.data() != nullptr && time < kMostTime)
      read_event(of, of.start + static_cast<int64_t>(time), pbf_reader(event));
  }
  static constexpr uint64_t kMostTime = uint64_t{1} << 60;

  void read_clock(Sequence& of, pbf_reader snapshot) {
    while (snapshot.next(clock_snapshot::kClocks)) {
      pbf_reader clock = snapshot.get_message();
      uint64_t id = 0, time = 0;
      while (clock.next()) {
        if (clock.tag() == clock_snapshot::kClockId)
          id = clock.get_uint64();
        else if (clock.tag() == clock_snapshot::kTimestamp)
          time = clock.get_uint64();
        else
          clock.skip();
      }
      if (id != clock_snapshot::kRealtime || time >= kMostTime * 2) continue;
      of.start = static_cast<int64_t>(time);
      has_clock_ = true;
    }
  }

  void read_interned(Sequence& of, pbf_reader data) {
    while (data.next()) {
      const uint32_t kind = data.tag();
      if (data.wire_type() != protozero::pbf_wire_type::length_delimited) {
        data.skip();
        continue;
      }
      pbf_reader entry = data.get_message();
      uint64_t id = 0;
      std::string text;
      while (entry.next()) {
        if (entry.tag() == interned::kId)
          id = entry.get_uint64();
        else if (entry.tag() == interned::kName)
          text = entry.get_string();
        else
          entry.skip();
      }
      if (kind == interned::kCategories) of.categories[id] = category_of(text);
      if (kind == interned::kEventNames) of.names[id] = events_.names(text);
      if (kind == interned::kAnnotationNames) of.argument_names[id] = text;
      if (kind == interned::kAnnotationStrings) of.strings[id] = text;
    }
  }

  void read_track(pbf_reader descriptor) {
    uint64_t id = 0;
    PacketTrack track;
    while (descriptor.next()) {
      if (descriptor.tag() == track::kUuid)
        id = descriptor.get_uint64();
      else if (descriptor.tag() == track::kParent)
        track.parent = descriptor.get_uint64();
      else if (descriptor.tag() == track::kName)
        track.name = descriptor.get_string();
      else if (descriptor.tag() == track::kProcess)
        read_process(track, descriptor.get_message());
      else if (descriptor.tag() == track::kThread)
        read_thread_descriptor(track, descriptor.get_message());
      else
        descriptor.skip();
    }
    PacketTrack& known = tracks_[id];
    track.events = std::move(known.events);
    known = std::move(track);
  }
  void read_process(PacketTrack& track, pbf_reader process) {
    while (process.next()) {
      if (process.tag() == process::kPid)
        track.pid = std::to_string(process.get_int32());
      else if (process.tag() == process::kName)
        track.name = process.get_string();
      else
        process.skip();
    }
    if (!track.pid.empty()) events_.process_names[events_.pids(track.pid)] = track.name;
    track.name.clear();
  }
  static void read_thread_descriptor(PacketTrack& track, pbf_reader thread) {
    while (thread.next()) {
      if (thread.tag() == thread::kPid)
        track.pid = std::to_string(thread.get_int32());
      else if (thread.tag() == thread::kTid)
        track.tid = std::to_string(thread.get_int64());
      else
        thread.skip();
    }
  }

  void read_event(const Sequence& of, int64_t time, pbf_reader fields) {
    PacketEvent e{.time = time, .flow = 0, .name = 0, .arguments = 0, .type = 0, .category = Category::kOther};
    uint64_t track = 0;
    Arguments arguments;
    while (fields.next()) {
      if (fields.tag() == event::kType)
        e.type = static_cast<uint8_t>(std::min<uint32_t>(fields.get_uint32(), 255));
      else if (fields.tag() == event::kTrack)
        track = fields.get_uint64();
      else if (fields.tag() == event::kName)
        e.name = found(of.names, fields.get_uint64());
      else if (fields.tag() == event::kCategory)
        e.category = found(of.categories, fields.get_uint64());
      else if (fields.tag() == event::kFlowIds)
        e.flow = fields.get_fixed64();
      else if (fields.tag() == event::kAnnotations)
        read_argument(of, arguments, fields.get_message());
      else
        fields.skip();
    }
    if (e.type != event::kSliceBegin && e.type != event::kSliceEnd) return;
    if (arguments.matter()) {
      arguments_.push_back(std::move(arguments));
      e.arguments = static_cast<uint32_t>(arguments_.size());
    }
    tracks_[track].events.push_back(e);
  }

  void read_argument(const Sequence& of, Arguments& into, pbf_reader argument) {
    std::string name, text;
    int64_t number = 0;
    while (argument.next()) {
      if (argument.tag() == annotation::kNameId)
        name = found(of.argument_names, argument.get_uint64());
      else if (argument.tag() == annotation::kStringId)
        text = found(of.strings, argument.get_uint64());
      else if (argument.tag() == annotation::kInt)
        number = argument.get_int64();
      else if (argument.tag() == annotation::kBool)
        number = argument.get_bool() ? 1 : 0;
      else
        argument.skip();
    }
    if (name == "FLOPs" && number > 0) into.flops = static_cast<uint64_t>(number);
    if (name == "Backward") into.is_backward = number != 0;
    if (name == "Module") into.module = text;
    if (name == "Module path") into.path = text;
    if (name == "Module root") into.root = text;
    if (name == "Step ends with") into.ended_by = text;
    if (name == "est. achieved occupancy %") into.occupancy = static_cast<double>(number) / 100;
  }

  template <class Value>
  static Value found(const std::unordered_map<uint64_t, Value>& map, uint64_t key) {
    const auto it = map.find(key);
    return it == map.end() ? Value{} : it->second;
  }

  // ---- tracks ----------------------------------------------------------------------------------------------

  const PacketTrack* parent_of(const PacketTrack& track) const {
    const auto it = tracks_.find(track.parent);
    return track.parent == 0 || it == tracks_.end() ? nullptr : &it->second;
  }
  // The track "GPU 0, NVIDIA H100" that it is below of.
  const PacketTrack* device_of(const PacketTrack& track) const {
    const PacketTrack* t = &track;
    for (int i = 0; i < kDeepest && t != nullptr; ++i, t = parent_of(*t))
      if (t->name.starts_with("GPU ")) return t;
    return nullptr;
  }
  std::string pid_of(const PacketTrack& track) const {
    const PacketTrack* t = &track;
    for (int i = 0; i < kDeepest && t != nullptr; ++i, t = parent_of(*t))
      if (!t->pid.empty()) return t->pid;
    return "unknown";
  }

  // Pairs begins with ends, as Perfetto does: by time, and in the order of the file where times are equal.
  // slice(begin, end, stack): `stack` has what is open around it. begun(stack): the last of it has begun.
  struct Open {
    const PacketEvent* begin;
    uint32_t external = 0;
  };
  template <class Begun, class Ended>
  static void pair(PacketTrack& track, Begun begun, Ended ended) {
    std::ranges::stable_sort(track.events, {}, &PacketEvent::time);
    std::vector<Open> open;
    for (const PacketEvent& e : track.events) {
      if (e.type == event::kSliceBegin) {
        open.push_back({&e});
        begun(open);
      } else if (!open.empty()) {
        const Open slice = open.back();
        open.pop_back();
        ended(slice, e);
      }
    }
  }

  void read_thread(uint64_t id, PacketTrack& track) {
    const std::string pid = pid_of(track);
    const bool is_steps = track.name == "Steps" && track.tid.empty();
    const std::string tid = track.tid.empty() ? "track " + std::to_string(id) : track.tid;
    const auto begun = [this](std::vector<Open>& open) {
      if (open.back().begin->category != Category::kCall || open.back().begin->flow == 0) return;
      for (size_t i = open.size(); i-- > 0;) {
        if (open[i].begin->category != Category::kOperator) continue;
        if (open[i].external == 0) open[i].external = ++last_external_;
        launched_by_[open.back().begin->flow] = open[i].external;
        return;
      }
    };
    pair(track, begun, [&](const Open& slice, const PacketEvent& end) {
      if (!is_sane(slice.begin->time, end.time)) return;
      const Arguments& of = end.arguments != 0 ? arguments_[end.arguments - 1] : none_;
      const std::string& name = *events_.names.texts[slice.begin->name];
      if (const auto number = is_steps ? step_number(name) : std::nullopt)
        events_.steps.push_back({*number, slice.begin->time, end.time, events_.pids(pid), of.ended_by});
      else
        add_slice(slice, end, of, pid, events_.row(pid, tid));
    });
    track.events = {};
  }

  void add_slice(const Open& slice, const PacketEvent& end, const Arguments& of, const std::string& pid, uint32_t row) {
    const Category category = slice.begin->category;
    const bool is_operator = category == Category::kOperator || category == Category::kAnnotation;
    if (!is_operator && category != Category::kPython) return;
    const uint32_t name = slice.begin->name;
    const std::string& text = *events_.names.texts[name];
    uint32_t module = 0;
    if (is_operator) {
      if (of.flops != 0) events_.flops[{events_.pids(pid), name}] += of.flops;
      if (!of.module.empty()) module = events_.names(of.module) + 1;
    } else if (text.starts_with(kModulePrefix)) {
      events_.places.try_emplace(name, ModulePlace{of.path, of.root});
    }
    events_.slices.push_back({.begin = slice.begin->time,
                              .duration = end.time - slice.begin->time,
                              .name = name,
                              .row = row,
                              .is_operator = is_operator,
                              .is_annotation = category == Category::kAnnotation,
                              .is_backward = of.is_backward,
                              .module = module,
                              .external = slice.external});
  }

  void read_device(PacketTrack& track, const PacketTrack& device) {
    const std::string pid = pid_of(track);
    // "GPU 0, NVIDIA H100"
    const size_t comma = device.name.find(", ");
    const uint32_t row = events_.pids(pid + " " + device.name);
    events_.devices.label(row, device.name);
    const auto number = static_cast<uint32_t>(std::strtoul(device.name.c_str() + 4, nullptr, 10));
    if (comma != std::string::npos) events_.devices.property(number, device.name.substr(comma + 2));
    pair(
        track, [](const std::vector<Open>&) {},
        [&](const Open& slice, const PacketEvent& end) {
          const bool is_kernel = slice.begin->category == Category::kKernel;
          if ((!is_kernel && slice.begin->category != Category::kCopyOrSet) || !is_sane(slice.begin->time, end.time))
            return;
          events_.device_owners[row] = events_.pids(pid);
          const auto call = launched_by_.find(slice.begin->flow);
          events_.devices.add(
              {.begin = slice.begin->time,
               .duration = end.time - slice.begin->time,
               .name = slice.begin->name,
               .pid = row,
               .external = slice.begin->flow == 0 || call == launched_by_.end() ? 0 : call->second,
               .blocks_per_sm = 0,
               .occupancy = end.arguments != 0 ? static_cast<float>(arguments_[end.arguments - 1].occupancy) : 0,
               .is_kernel = is_kernel});
        });
    track.events = {};
  }

  ByteStream& stream_;
  uint64_t at_ = 0;  // bytes that were read
  bool has_clock_ = false;
  ReadEvents events_;
  std::map<uint32_t, Sequence> sequences_;
  std::map<uint64_t, PacketTrack> tracks_;
  std::vector<Arguments> arguments_;
  const Arguments none_{};
  std::unordered_map<uint64_t, uint32_t> launched_by_;  // external by flow
  uint32_t last_external_ = 0;
};

}  // namespace

ReadEvents read_perfetto(ByteStream& stream) { return PerfettoReader(stream).read(); }

}  // namespace torchprof::formats
