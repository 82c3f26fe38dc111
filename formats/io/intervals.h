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
    // What goes on from the one before takes no room of its own.
    if (!spans_.empty() && begin >= spans_.back().first && begin <= spans_.back().second)
      spans_.back().second = spans_.back().second < end ? end : spans_.back().second;
    else
      spans_.emplace_back(begin, end);
  }
  void add(const Intervals& other) { spans_.insert(spans_.end(), other.spans_.begin(), other.spans_.end()); }
  bool empty() const { return spans_.empty(); }

  // After the last add(), before the first length().
  void settle();
  // Of the union of all, within these borders.
  int64_t length(int64_t begin, int64_t end) const;

 private:
  int64_t length_before(int64_t time) const;

  std::vector<std::pair<int64_t, int64_t>> spans_;
  std::vector<int64_t> sums_;  // of the lengths of those before each
};

}  // namespace torchprof::formats
