// The ranges of push and pop that are open on one thread: how deep each domain is, and by which key an end finds its
// begin.
//
// At most kMost are kept, of all domains together. What is pushed above them is counted alone and not recorded; so is
// what its domain pushes above that, until it is popped again. Of more than kMostDeeper domains that have such ranges,
// the last place counts for all the others.
//
// Belongs to one thread. 6 KiB, mapped at the thread's first range (tracer/source_memory.h): all zeros is an empty one.
// Hot, but for what is not recorded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cupti/nvtx/nvtx_abi.h"
#include "cupti/nvtx/nvtx_names.h"
#include "tracer/source_memory.h"

namespace torchprof::nvtx {

class OpenRanges {
 public:
  static constexpr Mapping kMapping = Mapping::kNvtx;
  static constexpr uint32_t kMost = 256;

  // First of all: ranges of an earlier window are forgotten, they were closed at its end.
  void begin_window(uint32_t window) noexcept {
    if (window_ == window) [[likely]]
      return;
    window_ = window;
    count_ = all_deeper_ = domains_ = 0;
  }

  // 1, 2, ...: of all ranges that the thread has recorded.
  uint32_t next_number() noexcept { return ++numbers_; }

  // How many of the domain are open among those that are kept.
  uint32_t level(const Domain& domain) const noexcept {
    const uint32_t past = innermost(domain);
    return past > 0 ? ranges_[past - 1].level + 1 : 0;
  }
  // A range of the domain would be kept.
  bool has_room(const Domain& domain) noexcept {
    return count_ < kMost && (all_deeper_ == 0 || deeper_level(domain) == 0);
  }
  // There is room. `level`: of the domain, before.
  void push(const Domain& domain, uint64_t key, uint32_t level) noexcept { ranges_[count_++] = {&domain, key, level}; }
  // There is none: it is counted. Its level.
  uint32_t push_deeper(const Domain& domain) noexcept;

  struct Popped {
    int level;     // kNoTracking: none is open
    uint64_t key;  // 0: it was not recorded
  };
  Popped pop(const Domain& domain) noexcept {
    if (all_deeper_ > 0 && deeper_level(domain) > 0) [[unlikely]]
      return {static_cast<int>(pop_deeper(domain)), 0};
    const uint32_t past = innermost(domain);
    if (past == 0) return {kNoTracking, 0};
    Range* const range = ranges_ + past - 1;
    const Range popped = *range;
    std::copy(range + 1, ranges_ + count_, range);
    --count_;
    return {static_cast<int>(popped.level), popped.key};
  }

 private:
  struct Range {
    const Domain* domain;
    uint64_t key;
    uint32_t level;  // how many of its domain are open below it
  };
  struct Deeper {
    const Domain* domain;
    uint32_t count;
  };
  static constexpr uint32_t kMostDeeper = 16;

  // One past the innermost range of the domain; 0: there is none.
  uint32_t innermost(const Domain& domain) const noexcept {
    uint32_t at = count_;
    while (at > 0 && ranges_[at - 1].domain != &domain) --at;
    return at;
  }
  uint32_t* deeper_of(const Domain& domain) noexcept;  // nullptr: the domain never had any in this window
  uint32_t deeper_level(const Domain& domain) noexcept;
  uint32_t pop_deeper(const Domain& domain) noexcept;

  uint32_t count_;
  uint32_t all_deeper_;  // that are not recorded, of all domains
  uint32_t window_;      // in which they began
  uint32_t numbers_;
  Range ranges_[kMost];  // innermost last
  uint32_t domains_;
  Deeper deeper_[kMostDeeper];
};

}  // namespace torchprof::nvtx
