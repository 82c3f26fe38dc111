#include "formats/read/perfetto_packets.h"

#include <algorithm>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <unordered_map>

#include "formats/io/perfetto_fields.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;
using protozero::pbf_reader;

// Fields are selected by number and type. A field with another type than the schema's is skipped, as protobuf does with
// every field that it does not know.
constexpr uint32_t varint_field(uint32_t tag) { return tag_and_type(tag, protozero::pbf_wire_type::varint); }
constexpr uint32_t fixed64_field(uint32_t tag) { return tag_and_type(tag, protozero::pbf_wire_type::fixed64); }
constexpr uint32_t bytes_field(uint32_t tag) { return tag_and_type(tag, protozero::pbf_wire_type::length_delimited); }

PacketCategory category_of(std::string_view name) {
  if (name == "python_function") return PacketCategory::kPython;
  if (name == "cpu_op") return PacketCategory::kOperator;
  if (name == "user_annotation") return PacketCategory::kAnnotation;
  if (name == "cuda_runtime" || name == "cuda_driver") return PacketCategory::kCall;
  if (name == "kernel") return PacketCategory::kKernel;
  return name == "gpu_memcpy" || name == "gpu_memset" ? PacketCategory::kCopyOrSet : PacketCategory::kOther;
}

enum class Argument : uint8_t {
  kOther,
  kFlops,
  kBackward,
  kAsync,
  kModule,
  kPath,
  kRoot,
  kEndedBy,
  kOccupancy,
  kCutBegin,
  kCutEnd
};

Argument argument_of(std::string_view name) {
  if (name == "FLOPs") return Argument::kFlops;
  if (name == "Backward") return Argument::kBackward;
  if (name == "Asynchronous") return Argument::kAsync;
  if (name == "Cut at begin, ns") return Argument::kCutBegin;
  if (name == "Cut at end, ns") return Argument::kCutEnd;
  if (name == "Module") return Argument::kModule;
  if (name == "Module path") return Argument::kPath;
  if (name == "Module root") return Argument::kRoot;
  if (name == "Step ends with") return Argument::kEndedBy;
  return name == "est. achieved occupancy %" ? Argument::kOccupancy : Argument::kOther;
}

class PacketReader {
 public:
  PacketReader(ByteStream& stream, ReadEvents& events, std::map<uint64_t, PacketTrack>& tracks, PacketSink& sink)
      : stream_(stream), events_(events), tracks_(tracks), sink_(sink) {}

  bool has_clock = false;

  void run() {
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

 private:
  static constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // limit of a packet

  // The definitions of one sequence.
  struct Sequence {
    std::unordered_map<uint64_t, PacketCategory> categories;
    std::unordered_map<uint64_t, uint32_t> names;  // interned
    std::unordered_map<uint64_t, Argument> arguments;
    std::unordered_map<uint64_t, std::string> strings;
    int64_t start = 0;  // start of its clock, Unix time
  };

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

  void read_packet(pbf_reader packet) {
    uint64_t time = 0;
    uint32_t flags = 0, sequence = 0;
    protozero::data_view clock{}, interned{}, track{}, event{};
    while (packet.next()) switch (packet.tag_and_type()) {
        case varint_field(packet::kTimestamp):
          time = packet.get_uint64();
          break;
        case varint_field(packet::kSequenceId):
          sequence = packet.get_uint32();
          break;
        case varint_field(packet::kSequenceFlags):
          flags = packet.get_uint32();
          break;
        case bytes_field(packet::kClockSnapshot):
          clock = packet.get_view();
          break;
        case bytes_field(packet::kInternedData):
          interned = packet.get_view();
          break;
        case bytes_field(packet::kTrackDescriptor):
          track = packet.get_view();
          break;
        case bytes_field(packet::kTrackEvent):
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
    // Even if the time is out of range: its slice is counted as impossible.
    if (event.data() != nullptr)
      read_event(of, sum(of.start, static_cast<int64_t>(std::min<uint64_t>(time, INT64_MAX))), pbf_reader(event));
  }

  void read_clock(Sequence& of, pbf_reader snapshot) {
    while (snapshot.next(clock_snapshot::kClocks, protozero::pbf_wire_type::length_delimited)) {
      pbf_reader clock = snapshot.get_message();
      uint64_t id = 0, time = 0;
      while (clock.next()) switch (clock.tag_and_type()) {
          case varint_field(clock_snapshot::kClockId):
            id = clock.get_uint64();
            break;
          case varint_field(clock_snapshot::kTimestamp):
            time = clock.get_uint64();
            break;
          default:
            clock.skip();
        }
      if (id != clock_snapshot::kRealtime || time > uint64_t{kLatest}) continue;
      of.start = static_cast<int64_t>(time);
      has_clock = true;
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
      while (entry.next()) switch (entry.tag_and_type()) {
          case varint_field(interned::kId):
            id = entry.get_uint64();
            break;
          case bytes_field(interned::kName):
            text = entry.get_string();
            break;
          default:
            entry.skip();
        }
      if (kind == interned::kCategories) of.categories[id] = category_of(text);
      if (kind == interned::kEventNames) of.names[id] = events_.names(text);
      if (kind == interned::kAnnotationNames) of.arguments[id] = argument_of(text);
      if (kind == interned::kAnnotationStrings) of.strings[id] = text;
    }
  }

  void read_track(pbf_reader descriptor) {
    uint64_t id = 0;
    PacketTrack track;
    while (descriptor.next()) switch (descriptor.tag_and_type()) {
        case varint_field(track::kUuid):
          id = descriptor.get_uint64();
          break;
        case varint_field(track::kParent):
          track.parent = descriptor.get_uint64();
          break;
        case bytes_field(track::kName):
          track.name = descriptor.get_string();
          break;
        case bytes_field(track::kProcess):
          read_process(track, descriptor.get_message());
          break;
        case bytes_field(track::kThread):
          read_thread_descriptor(track, descriptor.get_message());
          break;
        default:
          descriptor.skip();
      }
    tracks_[id] = std::move(track);
  }
  void read_process(PacketTrack& track, pbf_reader process) {
    while (process.next()) switch (process.tag_and_type()) {
        case varint_field(process::kPid):
          track.pid = std::to_string(process.get_int32());
          break;
        case bytes_field(process::kName):
          track.name = process.get_string();
          break;
        default:
          process.skip();
      }
    if (!track.pid.empty()) events_.process_names[events_.pids(track.pid)] = track.name;
    track.name.clear();
  }
  static void read_thread_descriptor(PacketTrack& track, pbf_reader thread) {
    while (thread.next()) switch (thread.tag_and_type()) {
        case varint_field(thread::kPid):
          track.pid = std::to_string(thread.get_int32());
          break;
        case varint_field(thread::kTid):
          track.tid = std::to_string(thread.get_int64());
          break;
        case bytes_field(thread::kName):
          track.name = thread.get_string();
          break;
        default:
          thread.skip();
      }
  }

  void read_event(const Sequence& of, int64_t time, pbf_reader fields) {
    PacketEvent e{.time = time, .flow = 0, .name = 0, .occupancy = 0, .type = 0, .category = PacketCategory::kOther};
    uint64_t track = 0;
    PacketArguments arguments;
    while (fields.next()) switch (fields.tag_and_type()) {
        case varint_field(event::kType):
          e.type = static_cast<uint8_t>(std::min<uint32_t>(fields.get_uint32(), 255));
          break;
        case varint_field(event::kTrack):
          track = fields.get_uint64();
          break;
        case varint_field(event::kName):
          e.name = found(of.names, fields.get_uint64());
          break;
        case varint_field(event::kCategory):
          e.category = found(of.categories, fields.get_uint64());
          break;
        case fixed64_field(event::kFlowIds):
          e.flow = fields.get_fixed64();
          break;
        case bytes_field(event::kAnnotations):
          read_argument(of, e, arguments, fields.get_message());
          break;
        default:
          fields.skip();
      }
    if (e.type == event::kSliceBegin || e.type == event::kSliceEnd) sink_.event(track, e, arguments);
  }

  static void read_argument(const Sequence& of, PacketEvent& event, PacketArguments& into, pbf_reader argument) {
    Argument name = Argument::kOther;
    std::string_view text;
    int64_t number = 0;
    while (argument.next()) switch (argument.tag_and_type()) {
        case varint_field(annotation::kNameId):
          name = found(of.arguments, argument.get_uint64());
          break;
        case varint_field(annotation::kStringId):
          text = text_of(of, argument.get_uint64());
          break;
        case varint_field(annotation::kInt):
          number = argument.get_int64();
          break;
        case varint_field(annotation::kBool):
          number = argument.get_bool() ? 1 : 0;
          break;
        default:
          argument.skip();
      }
    switch (name) {
      case Argument::kFlops:
        into.flops = number > 0 ? static_cast<uint64_t>(number) : 0;
        break;
      case Argument::kBackward:
        into.is_backward = number != 0;
        break;
      case Argument::kAsync:
        into.is_async = number != 0;
        break;
      case Argument::kCutBegin:
        into.cut_begin = number;
        break;
      case Argument::kCutEnd:
        into.cut_end = number;
        break;
      case Argument::kModule:
        into.module = text;
        break;
      case Argument::kPath:
        into.path = text;
        break;
      case Argument::kRoot:
        into.root = text;
        break;
      case Argument::kEndedBy:
        into.ended_by = text;
        break;
      case Argument::kOccupancy:
        event.occupancy = static_cast<float>(number) / 100;
        break;
      case Argument::kOther:
        break;
    }
  }

  static std::string_view text_of(const Sequence& of, uint64_t id) {
    const auto it = of.strings.find(id);
    return it == of.strings.end() ? std::string_view{} : it->second;
  }
  template <class Value>
  static Value found(const std::unordered_map<uint64_t, Value>& map, uint64_t key) {
    const auto it = map.find(key);
    return it == map.end() ? Value{} : it->second;
  }

  ByteStream& stream_;
  ReadEvents& events_;
  std::map<uint64_t, PacketTrack>& tracks_;
  PacketSink& sink_;
  uint64_t at_ = 0;  // number of bytes read so far
  std::map<uint32_t, Sequence> sequences_;
};

}  // namespace

bool read_packets(ByteStream& stream, ReadEvents& events, std::map<uint64_t, PacketTrack>& tracks, PacketSink& sink) {
  PacketReader reader(stream, events, tracks, sink);
  reader.run();
  return reader.has_clock;
}

}  // namespace torchprof::formats
