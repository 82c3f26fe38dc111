// What a reader keeps of one event of Kineto's JSON while it is parsed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "formats/read/events.h"
#include "formats/read/kineto_keys.h"

namespace torchprof::formats {

struct KinetoEvent {
  int64_t end_ns() const { return sum(begin_ns, duration_ns); }
  std::string name, phase, category, pid, tid, argument_name, labels, line, ended_by, module;
  std::string sync_kind, collective, type, group, group_description, group_ranks;
  ModulePlace place;
  ReadCut cut;
  std::array<double, kMemoryArguments> memory{};
  int64_t begin_ns = 0, duration_ns = 0;
  double flops = 0;
  double in_elements = 0, out_elements = 0;
  uint64_t work_bytes = 0;
  uint32_t external = 0, sequence = 0, correlation = 0, device = ReadWork::kUnknown, stream = 0;
  uint32_t waits_for_record = 0, waits_for_stream = UINT32_MAX;
  float blocks_per_sm = 0, occupancy = 0;
  bool is_made_step = false, has_begin = false, has_duration = false, has_category = false, is_backward = false,
       is_async = false;

  // Where an argument is kept that is a text; null: it is none.
  std::string* text_of(KinetoKey key) {
    switch (key) {
      case KinetoKey::kName:
        return &argument_name;
      case KinetoKey::kLabels:
        return &labels;
      case KinetoKey::kLine:
        return &line;
      case KinetoKey::kModule:
        return &module;
      case KinetoKey::kModulePath:
        return &place.path;
      case KinetoKey::kModuleRoot:
        return &place.root;
      case KinetoKey::kEndsWith:
        return &ended_by;
      case KinetoKey::kSyncKind:
        return &sync_kind;
      case KinetoKey::kCollective:
        return &collective;
      case KinetoKey::kType:
        return &type;
      case KinetoKey::kGroup:
        return &group;
      case KinetoKey::kGroupDescription:
        return &group_description;
      case KinetoKey::kGroupRanks:
        return &group_ranks;
      default:
        return nullptr;
    }
  }
};

}  // namespace torchprof::formats
