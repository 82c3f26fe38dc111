// The owners of memory events, as ids of Names, and their texts for people.
#pragma once

#include <string>
#include <unordered_map>

#include "formats/memory/memory.h"
#include "formats/native/site.h"
#include "formats/replay/replay.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

inline MemoryChange change_of(const MemoryEvent& e, const MemoryOwner& owner) {
  return {.window = window_of(e),
          .is_out_of_memory = e.is_out_of_memory,
          .is_mapped = e.is_mapped,
          .device_type = e.device_type,
          .device_index = e.device_index,
          .time = e.time,
          .address = e.address,
          .bytes = e.bytes,
          .allocated = e.allocated - e.inherited,
          .owner = owner};
}

class MemoryOwners {
 public:
  MemoryOwners(const Process& process, Names& names) : process_(process), names_(names), sites_(process, names) {}

  MemoryOwner of(const MemoryEvent& e) {
    const uint32_t module = e.module ? names_.function({}, e.module).value : 0;
    if (module != 0 && e.bytes > 0) modules_.try_emplace(module, e.module);
    return {.module = module,
            .op = e.op.value,
            .outer_op = e.outer_op.value,
            .place = (e.function ? names_.place(e.function, e.line) : sites_.of(e.native)).value};
  }
  // The module of an id that of() gave as an owner's module; none: the id is no module's.
  ObjectId module(uint32_t name) const {
    const auto it = modules_.find(name);
    return it == modules_.end() ? ObjectId{} : it->second;
  }
  // The text of an id; a module's with its path.
  std::string text(uint32_t name) const {
    const auto it = modules_.find(name);
    const std::string_view plain = names_.text({name});
    return it == modules_.end() ? std::string(plain) : module_text(plain, process_.path(it->second));
  }
  OwnerText text(const MemoryOwner& owner) const {
    return text_of(owner, [this](uint32_t name) { return text(name); });
  }

 private:
  const Process& process_;
  Names& names_;
  NativeSites sites_;
  std::unordered_map<uint32_t, ObjectId> modules_;  // by name
};

}  // namespace torchprof::formats
