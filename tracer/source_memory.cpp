#include "tracer/source_memory.h"

#include <atomic>

#include "tracer/process/diag.h"
#include "tracer/process/seal.h"

namespace torchprof {
namespace {

// Of each mapping, the same for every thread. Each stands for itself: relaxed.
constinit std::atomic<size_t> g_bytes[5];  // once one was made
constinit std::atomic<size_t> g_ahead[5];  // those that are made before the seal

}  // namespace

void* SourceMemory::map(Mapping mapping, size_t bytes) noexcept {
  static_assert(std::size(g_bytes) == kMappings && std::size(g_ahead) == kMappings);
  const KeepErrno keep;
  const auto i = static_cast<size_t>(mapping);
  g_bytes[i].store(bytes, std::memory_order_relaxed);
  return mappings_[i] = seal::map(bytes);
}

void SourceMemory::map_before_seal(Mapping mapping, size_t bytes) noexcept {
  g_ahead[static_cast<size_t>(mapping)].store(bytes, std::memory_order_relaxed);
}

void SourceMemory::map_ahead() noexcept {
  for (size_t i = 0; i < kMappings; ++i) {
    const size_t bytes = g_ahead[i].load(std::memory_order_relaxed);
    if (bytes > 0 && !mappings_[i]) map(Mapping{static_cast<uint8_t>(i)}, bytes);
  }
}

void SourceMemory::unmap() noexcept {
  for (size_t i = 0; i < kMappings; ++i)
    if (mappings_[i]) seal::unmap(mappings_[i], g_bytes[i].load(std::memory_order_relaxed));
}

}  // namespace torchprof
