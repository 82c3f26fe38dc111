#include "cupti/nvtx/nvtx_ranges.h"

namespace torchprof::nvtx {

uint32_t* OpenRanges::deeper_of(const Domain& domain) noexcept {
  for (uint32_t i = 0; i < domains_; ++i)
    if (deeper_[i].domain == &domain) return &deeper_[i].count;
  return domains_ < kMostDeeper ? nullptr : &deeper_[domains_ - 1].count;
}

uint32_t OpenRanges::deeper_level(const Domain& domain) noexcept {
  const uint32_t* count = deeper_of(domain);
  return count ? *count : 0;
}

uint32_t OpenRanges::push_deeper(const Domain& domain) noexcept {
  uint32_t* count = deeper_of(domain);
  if (!count) {
    deeper_[domains_] = {&domain, 0};
    count = &deeper_[domains_++].count;
  }
  ++all_deeper_;
  return level(domain) + (*count)++;
}

uint32_t OpenRanges::pop_deeper(const Domain& domain) noexcept {
  --all_deeper_;
  return level(domain) + --*deeper_of(domain);
}

}  // namespace torchprof::nvtx
