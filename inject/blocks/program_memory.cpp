#include "inject/blocks/program_memory.h"

#include <pthread.h>

#include "inject/blocks/block_table.h"
#include "inject/blocks/fork_safe.h"
#include "tracer/process/lock.h"
#include "tracer/window.h"

namespace torchprof::inject {
namespace {

pthread_mutex_t g_layout_lock = PTHREAD_MUTEX_INITIALIZER;

BlockTable g_reported;  // what torch has reported in the window g_reported_in
uint32_t g_reported_in = 0;
BlockTable g_noted;   // torch's size_table_, as it would be without us
BlockTable g_mapped;  // blocks of at::MapAllocator, which reports whether a profiler is on or not
uint64_t g_total = 0;

}  // namespace

bool program_would_see(const void* address, int64_t& bytes, uint64_t& allocated, uint64_t reserved,
                       bool wanted) noexcept {
  // at::MapAllocator reports the bytes that it maps as reserved, and totals of 0 when it frees.
  const bool may_be_mapped = reserved != 0 || (bytes < 0 && allocated == 0);
  if (!wanted && !may_be_mapped) return false;
  survive_fork<g_layout_lock>();
  const Lock lock(g_layout_lock);
  if (reserved != 0) {
    g_mapped.put(address, bytes);
    return true;
  }
  if (int64_t* mapped = may_be_mapped ? g_mapped.find(address) : nullptr) {
    *mapped = 0;
    return true;
  }
  if (!wanted) return false;
  if (bytes > 0) {
    if (!g_noted.put(address, bytes)) return false;
    g_total += static_cast<uint64_t>(bytes);
  } else {
    int64_t* noted = g_noted.find(address);
    if (!noted) return false;
    bytes = -*noted;
    g_total -= static_cast<uint64_t>(*noted);
    *noted = 0;
  }
  allocated = g_total;
  return true;
}

void note_reported(const void* address, int64_t bytes) noexcept {
  survive_fork<g_layout_lock>();
  const Lock lock(g_layout_lock);
  if (g_reported_in != window::number()) g_reported.clear();
  g_reported_in = window::number();
  if (bytes > 0) {
    g_reported.put(address, bytes);
  } else if (int64_t* known = g_reported.find(address)) {
    *known = 0;
  }
}

bool was_reported(const void* address) noexcept {
  const Lock lock(g_layout_lock);
  return g_reported_in == window::number() && g_reported.find(address) != nullptr;
}

uint64_t program_total() noexcept {
  survive_fork<g_layout_lock>();
  const Lock lock(g_layout_lock);
  return g_total;
}

}  // namespace torchprof::inject
