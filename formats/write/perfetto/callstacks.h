// Native stacks as the callstacks of a Perfetto trace's events, interned: each stack, frame and object is written once.
//
// Perfetto's UI (v58, as TrackEvent has callstacks) lists the frames of a selected slice and makes a flame graph of
// those in a selected area. Earlier versions skip the fields.
//
// Memory: bounded by the stacks, frames and objects of the code that ran, not by the number of events.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/trace/trace.h"
#include "formats/write/perfetto/interning.h"

namespace torchprof::formats::perfetto {

class Callstacks {
 public:
  Callstacks(const Process& process, Interning& names) : process_(process), names_(names) {}

  // A field of a TrackEvent; empty if there is no stack, or its frames have not been named. Valid until the next call.
  std::string_view field(NativeFrameId innermost);

 private:
  using Ids = std::vector<uint64_t>;
  const Ids& frames_of(uint32_t place);
  uint64_t mapping(const NativeObjectDef& object);

  const Process& process_;
  Interning& names_;
  std::unordered_map<uint32_t, std::string> fields_;  // by innermost frame
  std::unordered_map<uint32_t, Ids> frames_;          // by place, innermost first
  std::unordered_map<uint32_t, uint64_t> mappings_;   // by object
  uint64_t last_frame_ = 0;
};

}  // namespace torchprof::formats::perfetto
