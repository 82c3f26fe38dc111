#include "formats/replay/cpu_memory.h"

#include <algorithm>
#include <utility>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// For byte counts, which may be any number.
int64_t add_or_zero(int64_t total, int64_t bytes) {
  int64_t sum = 0;
  return __builtin_add_overflow(total, bytes, &sum) ? 0 : std::max<int64_t>(0, sum);
}

}  // namespace

void CpuMemory::begin_window(uint32_t number) {
  if (number <= 1) return;
  allocated_ = 0;
  before_.reset();
  mappings_.clear();
  own_.clear();
  inherited_ = 0;
  has_begun_ = true;
}

bool CpuMemory::is_mapping(const Memory& memory) {
  if (memory.reserved != 0 && memory.bytes > 0) {
    mappings_.insert(memory.address);
    return true;
  }
  if (memory.bytes > 0 || mappings_.erase(memory.address) != 0) return memory.bytes <= 0;
  return memory.allocated == 0 && allocated_ && memory.bytes != -*allocated_;  // it was mapped before the capture
}

void CpuMemory::inherit(const Memory& memory, bool is_told) {
  if (is_told && !std::exchange(has_begun_, true)) {
    const auto told = static_cast<int64_t>(std::min<uint64_t>(memory.allocated, INT64_MAX));
    inherited_ = memory.bytes == INT64_MIN ? 0 : add_or_zero(told, -memory.bytes);
  }
  if (memory.bytes > 0)
    own_.insert(memory.address);
  else if (own_.erase(memory.address) == 0)
    inherited_ = add_or_zero(inherited_, memory.bytes);
}

uint64_t CpuMemory::total(const Memory& memory, bool after_gap) {
  const bool is_told = memory.allocated != kNoTotal;
  if (is_forked_) inherit(memory, is_told);
  const auto told = static_cast<int64_t>(std::min<uint64_t>(memory.allocated, INT64_MAX));
  const bool is_known = before_.has_value();
  const int64_t summed = add_or_zero(allocated_.value_or(0), memory.bytes);
  if (is_told && !is_known) before_ = difference(told, summed);
  allocated_ =
      is_told && is_known && (after_gap || !allocated_) ? std::max<int64_t>(0, difference(told, *before_)) : summed;
  return static_cast<uint64_t>(*allocated_);
}

}  // namespace torchprof::formats
