// The packets of one process in a Perfetto trace; each process is one packet sequence.
#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>

#include "formats/io/output.h"
#include "formats/io/perfetto_fields.h"
#include "formats/write/perfetto/interning.h"
#include "tracer/spool/clock.h"

namespace torchprof::formats::perfetto {

// Encoded fields of a TrackEvent.
std::string track_field(uint64_t track);
std::string type_field(uint32_t type);

enum class CounterUnit : uint8_t { kNoCounter, kBytes, kCount, kPercent };

class Packets {
 public:
  // Times count from `start`. `last_track`: the last track id of the whole file.
  Packets(uint32_t sequence, UnixNs start, uint64_t& last_track, Interning& names, Output& out)
      : sequence_(sequence), start_(start), last_track_(last_track), names_(names), out_(out) {}

  // Writes a packet; `fill` adds its content besides the sequence.
  template <class Fill>
  void packet(uint32_t flags, Fill fill) {
    std::string bytes;
    {
      protozero::pbf_writer trace(bytes);
      protozero::pbf_writer packet(trace, trace::kPacket);
      packet.add_uint32(packet::kSequenceId, sequence_);
      packet.add_uint32(packet::kSequenceFlags, flags);
      fill(packet);
    }
    out_.write(bytes);
  }

  // Must be the first packet.
  void write_clock();
  // Writes an event made of encoded parts, after the names that were interned for it. `more` is left out if it is too
  // long.
  void event(UnixNs time, std::string_view track, std::string_view fields, std::string_view more = {});

  uint64_t next_track() { return ++last_track_; }
  uint64_t add_track(uint64_t parent, std::string_view name, CounterUnit unit = CounterUnit::kNoCounter);
  // `track`: encoded fields of a counter's track.
  void count(std::string_view track, UnixNs time, int64_t value);
  static std::string counter_fields(uint64_t track);

 private:
  const uint32_t sequence_;
  const UnixNs start_;
  uint64_t& last_track_;
  Interning& names_;
  Output& out_;
};

}  // namespace torchprof::formats::perfetto
