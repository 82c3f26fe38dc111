// Decodes the packets of a Perfetto trace of ours into tracks and events: the part of perfetto.h that knows protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/io/byte_stream.h"
#include "formats/read/events.h"

namespace torchprof::formats {

enum class PacketCategory : uint8_t { kOther, kPython, kOperator, kAnnotation, kCall, kKernel, kCopyOrSet };

struct PacketEvent {
  int64_t time;   // ns
  uint64_t flow;  // 0: none
  uint32_t name;  // interned
  float occupancy;
  uint8_t type;  // event::kSliceBegin or kSliceEnd
  PacketCategory category;
};
static_assert(sizeof(PacketEvent) == 32);

struct PacketArguments {
  uint64_t flops = 0, cut_begin = 0, cut_end = 0;
  std::string_view module, path, root, ended_by;  // valid until the next packet
  bool is_backward = false;
  bool is_async = false;
};

struct PacketTrack {
  uint64_t parent = 0;
  std::string name, pid, tid;  // pid: only of a process's or thread's own track
};

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual void event(uint64_t track, const PacketEvent& event, const PacketArguments& arguments) = 0;
};

// Adds each track to `tracks`, by its id, before its first event goes to `sink`. Names are interned in `events`, which
// gets the names of processes, too. Returns whether there is a clock: then even a trace without events is one of ours.
// Throws Error.
bool read_packets(ByteStream& stream, ReadEvents& events, std::map<uint64_t, PacketTrack>& tracks, PacketSink& sink);

}  // namespace torchprof::formats
