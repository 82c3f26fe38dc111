// The packets of a Perfetto trace of our own -> tracks with their events: the part of formats/read_perfetto.h that
// knows protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/byte_stream.h"
#include "formats/read_events.h"

namespace torchprof::formats {

enum class PacketCategory : uint8_t { kOther, kPython, kOperator, kAnnotation, kCall, kKernel, kCopyOrSet };

struct PacketEvent {
  int64_t time;        // ns
  uint64_t flow;       // 0: none
  uint32_t name;       // interned
  uint32_t arguments;  // index into arguments and 1; 0: none that matters
  uint8_t type;        // event::kSliceBegin or kSliceEnd
  PacketCategory category;
};
static_assert(sizeof(PacketEvent) == 32);

struct PacketArguments {
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

struct PacketTracks {
  std::map<uint64_t, PacketTrack> tracks;  // by their numbers
  std::vector<PacketArguments> arguments;
  bool has_clock = false;  // it is a trace of ours, if only one without events
};

// Names are interned in `events`, which gets the names of processes too. Throws Error.
PacketTracks read_packets(ByteStream& stream, ReadEvents& events);

}  // namespace torchprof::formats
