// The total of torch's CPU allocator over all threads, and which events are of mappings and not the allocator's.
//
// A forked process has its parent's blocks and begins with the parent's total. Those blocks are not its own: what the
// total has of them is known apart, until the process frees them. With a window, blocks from before it count as
// inherited, too.
//
// torch's CPU allocator counts only while a window is open: what it counted and what is freed between windows stays in
// its total for ever. So from the second window on the total is what the window itself has allocated.
//
// Events come in the order of time. Memory: the addresses of live mappings, and of a forked process those of
// all its live blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "tracer/spool/record.h"

namespace torchprof::formats {

class CpuMemory {
 public:
  explicit CpuMemory(bool is_forked) : is_forked_(is_forked) {}
  // The window with this number (from 1) begins.
  void begin_window(uint32_t number);
  // at::MapAllocator reports the size of the mapping as `reserved`, and no total at all when it unmaps (1.13 to 2.14).
  bool is_mapping(const Memory& memory);
  // The total after this event, which must not be a mapping's. It is our own sum in the order of time, because the
  // allocator's totals are in the order in which threads took its lock. Blocks from before the capture may be freed in
  // it, so the sum is held at 0 or above. `after_gap`: events of this thread are missing before it, so the sum starts
  // anew.
  uint64_t total(const Memory& memory, bool after_gap);
  // The part of the latest total that the process had from its parent.
  uint64_t inherited() const { return static_cast<uint64_t>(inherited_); }

 private:
  void inherit(const Memory& memory, bool is_told);

  std::optional<int64_t> allocated_;       // none until an event gives it
  std::optional<int64_t> before_ = 0;      // what torch counts and this does not; none until an event tells
  std::unordered_set<uint64_t> mappings_;  // addresses of live mappings
  bool is_forked_;
  bool has_begun_ = false;
  int64_t inherited_ = 0;
  std::unordered_set<uint64_t> own_;  // addresses of live blocks of a forked process
};

}  // namespace torchprof::formats
