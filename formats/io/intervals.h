// Times in which something was going on: half-open intervals, in any order and overlapping in any way.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace torchprof::formats {

class Intervals {
 public:
  void add(int64_t begin, int64_t end) {
    if (end <= begin) return;
    // One that touches the one before only extends it.
    if (!spans_.empty() && begin >= spans_.back().first && begin <= spans_.back().second)
      spans_.back().second = spans_.back().second < end ? end : spans_.back().second;
    else
      spans_.emplace_back(begin, end);
  }
  void add(const Intervals& other) { spans_.insert(spans_.end(), other.spans_.begin(), other.spans_.end()); }
  bool empty() const { return spans_.empty(); }

  // After the last add(), before the first length().
  void settle();
  // How long any of them lasts within these borders; what overlaps counts once.
  int64_t length(int64_t begin, int64_t end) const;
  // Once settled: in order, and none overlaps another.
  const std::vector<std::pair<int64_t, int64_t>>& all() const { return spans_; }

 private:
  int64_t length_before(int64_t time) const;

  std::vector<std::pair<int64_t, int64_t>> spans_;
  std::vector<int64_t> sums_;  // for each interval, the lengths of all before it
};

}  // namespace torchprof::formats
