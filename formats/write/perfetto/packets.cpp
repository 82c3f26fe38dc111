#include "formats/write/perfetto/packets.h"

#include <algorithm>
#include <protozero/buffer_fixed.hpp>

namespace torchprof::formats::perfetto {
namespace {

using protozero::pbf_writer;
using FixedWriter = protozero::basic_pbf_writer<protozero::fixed_size_buffer_adaptor>;

constexpr size_t kMaxPacket = 128;  // bytes of an event without its fragments

}  // namespace

std::string track_field(uint64_t track) {
  std::string field;
  pbf_writer(field).add_uint64(event::kTrack, track);
  return field;
}

std::string type_field(uint32_t type) {
  std::string field;
  pbf_writer(field).add_uint32(event::kType, type);
  return field;
}

void Packets::write_clock() {
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

void Packets::event(UnixNs time, std::string_view track, std::string_view fields, std::string_view more) {
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

uint64_t Packets::add_track(uint64_t parent, std::string_view name, CounterUnit unit) {
  const uint64_t id = next_track();
  packet(packet::kNeedsIncrementalState, [&](pbf_writer& p) {
    pbf_writer track(p, packet::kTrackDescriptor);
    track.add_uint64(track::kUuid, id);
    track.add_uint64(track::kParent, parent);
    track.add_bytes(track::kName, text_field(name));
    if (unit == CounterUnit::kNoCounter) return;
    pbf_writer counter(track, track::kCounter);
    if (unit == CounterUnit::kPercent)
      counter.add_bytes(counter::kUnitName, "%");
    else
      counter.add_uint32(counter::kUnit, unit == CounterUnit::kBytes ? counter::kBytes : counter::kCount);
  });
  return id;
}

std::string Packets::counter_fields(uint64_t track) { return type_field(event::kCounter) + track_field(track); }

void Packets::count(std::string_view track, UnixNs time, int64_t value) {
  std::string field;
  pbf_writer(field).add_int64(event::kCounterValue, value);
  event(time, track, field);
}

}  // namespace torchprof::formats::perfetto
