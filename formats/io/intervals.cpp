#include "formats/io/intervals.h"

#include <algorithm>

namespace torchprof::formats {

void Intervals::settle() {
  std::ranges::sort(spans_);
  size_t kept = 0;
  for (const auto& [begin, end] : spans_) {
    if (kept > 0 && begin <= spans_[kept - 1].second)
      spans_[kept - 1].second = std::max(spans_[kept - 1].second, end);
    else
      spans_[kept++] = {begin, end};
  }
  spans_.resize(kept);
  sums_.resize(kept + 1);
  for (size_t i = 0; i < kept; ++i) sums_[i + 1] = sums_[i] + spans_[i].second - spans_[i].first;
}

int64_t Intervals::length_before(int64_t time) const {
  const auto after = std::ranges::lower_bound(spans_, time, {}, &std::pair<int64_t, int64_t>::first);
  const auto i = static_cast<size_t>(after - spans_.begin());
  const int64_t beyond = i > 0 ? std::max<int64_t>(0, spans_[i - 1].second - time) : 0;
  return sums_[i] - beyond;
}

int64_t Intervals::length(int64_t begin, int64_t end) const {
  return end <= begin || spans_.empty() ? 0 : length_before(end) - length_before(begin);
}

}  // namespace torchprof::formats
