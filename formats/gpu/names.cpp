#include "formats/gpu/names.h"

#include <array>

#include "formats/symbols/demangle.h"

namespace torchprof::formats {
namespace {

// CUpti_ActivityMemoryKind, from 0 on.
constexpr std::array<const char*, 8> kMemory = {"Unknown", "Pageable", "Pinned",        "Device",
                                                "Array",   "Managed",  "Device Static", "Managed Static"};
const char* memory(size_t kind) { return kind < kMemory.size() ? kMemory[kind] : "Unrecognized"; }

template <size_t N>
const char* of(const std::array<const char*, N>& names, size_t i, const char* other) {
  return i < N ? names[i] : other;
}

}  // namespace

std::string kernel_name(std::string_view mangled) {
  return demangle(std::string(mangled.empty() ? "<unknown kernel>" : mangled));
}

std::string copy_name(const GpuCopy& copy) {
  constexpr std::array<const char*, 11> kKinds = {"<unknown>", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                  "AtoD",      "DtoA", "DtoD", "HtoH", "PtoP"};
  return std::string("Memcpy ") + of(kKinds, copy.copy_kind, "<unknown>") + " (" + memory(copy.src_kind) + " -> " +
         memory(copy.dst_kind) + ")";
}

std::string set_name(const GpuSet& set) { return std::string("Memset (") + memory(set.memory_kind) + ")"; }

std::string sync_name(const GpuSync& sync) {
  constexpr std::array<const char*, 5> kTypes = {"Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync",
                                                 "Context Sync"};
  return of(kTypes, sync.type, "Unknown Sync");
}

// CUpti_ActivityOverheadKind: 0, 1, then 1 << 16, 2 << 16 ...
std::string overhead_name(const GpuOverhead& overhead) {
  constexpr std::array<const char*, 8> kKinds = {"Unknown",
                                                 "Buffer Flush",
                                                 "Instrumentation",
                                                 "Resource",
                                                 "Runtime Triggered Module Loading",
                                                 "Lazy Function Loading",
                                                 "Command Buffer Full",
                                                 "Activity Buffer Request"};
  if (overhead.kind == 1) return "Driver Compiler";
  return (overhead.kind & 0xffff) == 0 ? of(kKinds, overhead.kind >> 16, "Unrecognized") : "Unrecognized";
}

}  // namespace torchprof::formats
