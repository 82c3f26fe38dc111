// The total of torch's CPU allocator over all threads, and which events are none of the allocator's.
//
// Events in the order of time. Memory: the addresses of mappings that live.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "tracer/spool/record.h"

namespace torchprof::formats {

class CpuMemory {
 public:
  // Events are missing.
  void restart() { allocated_.reset(); }
  // at::MapAllocator names the size of the mapping as reserved, and when it goes no total at all (1.13 to 2.14).
  bool is_mapping(const Memory& memory);
  // After the event, which is no mapping. It is summed up in the order of time: what the allocator itself says in each
  // event is in the order in which threads took its lock. A block that was there before capture began may be freed in
  // it: the sum is never negative. `after_gap`: events of this thread are missing, the sum begins anew.
  uint64_t total(const Memory& memory, bool after_gap);

 private:
  std::optional<int64_t> allocated_;       // none until an event says it
  std::unordered_set<uint64_t> mappings_;  // addresses
};

}  // namespace torchprof::formats
